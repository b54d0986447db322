"""Questions: what the text says, what the TOML file says, and where an error points."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skelmix.errors import InvalidInput
from skelmix.statistics import (
    Axis,
    Bins,
    Bounds,
    Categories,
    Count,
    CrossTable,
    Histogram,
    Layout,
    Mean,
    Quantiles,
    Question,
    Sum,
    Top,
    Variance,
    parse_question,
    read_question,
)

ASK = (
    "count; mean(age, 0..110); histogram(diagnosis: A|B|C); quantiles(stay, 0..60 by 1; 0.25 0.5 0.9); "
    "crosstab(diagnosis, sex: F|M); top(diagnosis; 2) importance 4; variance(age); sum(stay)"
)
DIAGNOSIS, SEX = Axis("diagnosis", Categories(("A", "B", "C"))), Axis("sex", Categories(("F", "M")))
MEANT = Question(
    (
        Count(),
        Mean("age", Bounds(0, 110)),
        Histogram(DIAGNOSIS),
        Quantiles("stay", Bins(0, 60, 1), (0.25, 0.5, 0.9)),
        CrossTable(DIAGNOSIS, SEX),
        Top(DIAGNOSIS, 2),
        Variance("age", Bounds(0, 110)),
        Sum("stay", Bounds(0, 60)),
    ),
    (1, 1, 1, 1, 1, 4, 1, 1),
)


def test_text_means_the_typed_question():
    assert parse_question(ASK) == MEANT
    on_lines = re.sub(r"; (?=[a-z])", "\n", ASK)
    assert on_lines.count("\n") == 7
    assert parse_question(on_lines) == MEANT
    assert MEANT.columns == ("age", "diagnosis", "stay", "sex")


def test_a_domain_may_be_declared_apart_or_come_from_a_schema():
    asked = CrossTable(DIAGNOSIS, SEX)
    text = "column(sex: F|M); column(diagnosis: A|B|C); crosstab(diagnosis, sex)"
    assert parse_question(text).queries == (asked,)
    known = {"sex": SEX.domain, "diagnosis": DIAGNOSIS.domain}
    assert parse_question("crosstab(diagnosis, sex)", columns=known).queries == (asked,)


def test_the_file_in_the_guide_is_a_question(tmp_path):
    guide = Path(__file__).parents[2] / "docs" / "guides" / "statistics.md"
    (text,) = re.findall(r"```toml\n(.*?)```", guide.read_text(), re.DOTALL)
    (tmp_path / "question.toml").write_text(text)
    asked = (MEANT.queries[1], MEANT.queries[4], MEANT.queries[3])
    assert read_question(tmp_path / "question.toml") == Question(asked, (16, 1, 1))


def test_toml_has_the_same_content(tmp_path):
    path = tmp_path / "question.toml"
    path.write_text(
        """
        [columns]
        sex = ["F", "M"]
        age = "0..110"
        [[query]]
        kind = "count"
        [[query]]
        kind = "mean"
        column = "age"
        [[query]]
        kind = "histogram"
        column = "diagnosis"
        categories = ["A", "B", "C"]
        [[query]]
        kind = "quantiles"
        column = "stay"
        bounds = [0, 60]
        width = 1
        probabilities = [0.25, 0.5, 0.9]
        [[query]]
        kind = "crosstab"
        columns = ["diagnosis", "sex"]
        [[query]]
        kind = "top"
        column = "diagnosis"
        k = 2
        importance = 4
        [[query]]
        kind = "variance"
        column = "age"
        bounds = [0, 110]
        [[query]]
        kind = "sum"
        column = "stay"
        """
    )
    assert read_question(path) == MEANT


numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))
names = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), min_size=1, max_size=8
).filter(lambda name: name.strip() == name and not ("'" in name and '"' in name))
bounds = st.tuples(numbers, st.floats(0.5, 1e5)).map(lambda ends: Bounds(ends[0], ends[0] + ends[1]))
bins = st.tuples(bounds, st.integers(1, 50)).map(
    lambda parts: Bins(parts[0].low, parts[0].high, parts[0].half_range * 2 / parts[1])
)
categories = st.lists(names, min_size=1, max_size=5, unique=True).map(lambda found: Categories(tuple(found)))
axes = st.builds(Axis, names, st.one_of(bins, categories))
probabilities = st.lists(st.integers(1, 999).map(lambda k: k / 1000), min_size=1, max_size=4, unique=True)
queries = st.one_of(
    st.just(Count()),
    st.builds(Sum, names, bounds),
    st.builds(Mean, names, bounds),
    st.builds(Variance, names, bounds),
    st.builds(Histogram, axes),
    st.tuples(axes, axes)
    .filter(lambda pair: pair[0].column != pair[1].column)
    .map(lambda pair: CrossTable(*pair)),
    st.builds(Quantiles, names, bins, probabilities.map(tuple)),
    st.builds(Axis, names, categories).map(lambda axis: Top(axis, len(axis.domain.names))),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(queries, min_size=1, max_size=6, unique=True), st.data())
def test_the_text_of_any_question_reads_back(asked, data):
    importance = tuple(data.draw(st.sampled_from([0.5, 1, 16])) for _ in asked)
    question = Question(tuple(asked), importance)
    assert parse_question(str(question)) == question


def test_a_third_dot_is_no_decimal_point():
    for text in ("mean(age, 0...110)", "mean(age, 0....5)", "histogram(age: 0...60 by 1)"):
        with pytest.raises(InvalidInput, match=r"expected bounds such as 0\.\.110"):
            parse_question(text)
    assert parse_question("mean(age, .5.. .75)").queries == (Mean("age", Bounds(0.5, 0.75)),)


def test_a_question_for_more_numbers_than_fit_is_refused_before_any_is_laid_out(monkeypatch):
    monkeypatch.setattr(Bins, "edges", property(lambda _: pytest.fail("edges were computed")))
    text = "; ".join(f"histogram(c{k}: 0..1048574 by 1)" for k in range(100))
    with pytest.raises(InvalidInput, match="asks for 104,857,500 numbers, more than 4,194,304"):
        _ = Layout(parse_question(text)).dimension


def test_bins_that_are_too_narrow_are_refused_with_the_question():
    with pytest.raises(InvalidInput, match="too narrow for the size of their bounds"):
        _ = Layout(parse_question("histogram(x: 1e16..10000000000000010 by 1)")).dimension


@settings(max_examples=200, deadline=None)
@given(st.text("countmeahisgrq(),;:|.'\"019 \nAB", max_size=60))
def test_any_text_is_read_or_refused_with_a_place(text):
    try:
        question = parse_question(text)
    except InvalidInput as error:
        message = str(error)
    else:
        message = "question, character 0: "
        assert parse_question(str(question)) == question
    assert re.match(r"question, (line \d+, )?character \d+: ", message)


@pytest.mark.parametrize(
    ("text", "character", "says"),
    [
        ("count; mean(age, 0..110", 24, "expected ')'"),
        ("count; mea(age)", 8, "expected one of count"),
        ("mean(age, 5..1)", 11, "lower one must be below"),
        ("mean(age, 0..5e-324)", 11, "by 1e-100 or more"),
        ("histogram(work: ' Private'|State)", 17, "write 'Private'"),
        ("histogram(a: A|B|A)", 14, "listed twice"),
        ("count count", 7, "expected ';'"),
        ("crosstab(diagnosis: A|B, sex)", 26, "never read from the data"),
        ("quantiles(stay, 0..60; 0.5)", 11, "does not fit"),
        ("quantiles(stay, 0..60 by 1; 1.5)", 1, "strictly between 0 and 1"),
        ("top(a: A|B; 7)", 1, "must be an integer in 1..2"),
        ("top(a: 0..9 by 1; 2)", 5, "does not fit"),
        ("mean(age, 0..110); mean(age)", 20, "asked twice"),
        ("histogram(a: A|B); histogram(a: A|C); crosstab(a, b: X|Y)", 48, "say which one"),
        ("mean(age, 0..110) importance 0", 30, "importance"),
        ("", 1, "nothing is asked"),
    ],
)
def test_an_error_points_at_the_character(text, character, says):
    with pytest.raises(InvalidInput, match=rf"character {character}: ") as caught:
        parse_question(text)
    assert says in str(caught.value)
    assert str(caught.value).splitlines()[-1].index("^") == character - 1 + 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[query]]\nkind = 'median'", "query 1: kind = 'median'"),
        ("[[query]]\nkind = 'count'\n[[query]]\nkind = 'mean'", "query 2: mean needs 1 column"),
        ("[[query]]\nkind = 'mean'\ncolumn = 'age'", "query 1: age: nothing says"),
        ("[[query]]\nkind = 'mean'\ncolumn = 'age'\nbounds = [0]", "query 1: bounds = "),
        ("[[query]]\nkind = 'mean'\ncolum = 'age'", "unknown key 'colum'"),
        ("[columns]\nage = 3", "columns.age: 3"),
        ("[[query]\n", "not TOML: "),
    ],
)
def test_an_error_names_the_query_of_the_file(tmp_path, text, says):
    path = tmp_path / "question.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_question(path)
    assert says in str(caught.value)


def test_bins_end_at_the_upper_bound_and_have_tidy_edges():
    assert Bins(0, 1, 0.1).edges.tolist() == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert Bins(0, 10, 4).labels == ("0..4", "4..8", "8..10", "missing")
    assert Categories(("A", "B")).labels == ("A", "B", "other")
    assert Categories(("other", "B")).labels == ("other", "B")


def test_many_queries_are_not_compared_with_each_other(monkeypatch):
    """A party reads the text before its policy can refuse it: the work must not grow as its square."""
    compared = []
    original = Sum.__eq__

    def watched(self, other):
        compared.append(None)
        return original(self, other)

    monkeypatch.setattr(Sum, "__eq__", watched)
    question = parse_question("; ".join(f"sum(a, 0..{k})" for k in range(1, 301)))
    assert len(question.queries) == 300
    assert len(compared) < 300
