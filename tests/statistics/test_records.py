"""A record's vector: bounded whatever it holds, a function of that record alone, added exactly."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skelmix.errors import InvalidInput
from skelmix.statistics import Layout, Owners, Question, parse_question, party_sum
from skelmix.statistics.accumulate import Accumulator, entries
from skelmix.statistics.blocks import Cells, Centred, Missing, Records, Total
from skelmix.statistics.owners import scaled_to

RADIUS = 1 << 34
ASK = (
    "count; sum(age, -110..110); sum(stay, 0..60); mean(age, 0..110); variance(age, 0..110); "
    "histogram(diagnosis: A|B|C); histogram(age: 0..110 by 0.7); crosstab(diagnosis, sex: F|M); "
    "quantiles(stay, 0..60 by 1; 0.5); mean(stay)"
)
LAYOUT = Layout(parse_question(ASK))


def batch_of(rows):
    names = ("age", "stay", "diagnosis", "sex")
    kinds = (pa.float64(), pa.float32(), pa.string(), pa.string())
    columns = list(zip(*rows, strict=True)) if rows else [[]] * 4
    return pa.record_batch([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names=names)


def total_of(*batches, layout=LAYOUT):
    accumulator = Accumulator(layout, RADIUS)
    for batch in batches:
        accumulator.add(batch)
    return accumulator.total()


def record_vectors(batch, layout, radius, rows=1):
    """Each record's own vector, (records, dimension) int64 in fixed-point units."""
    found = np.zeros((batch.num_rows, layout.dimension), np.int64)
    for where, values in entries(batch, layout, radius, rows):
        found[np.arange(batch.num_rows), where] += values
    return found


def entry(total, block, layout=LAYOUT):
    """A block's entries in the answers' units."""
    place = layout.place(block)
    return (total / RADIUS * layout.entry_units(RADIUS))[place]


values = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(-20, 130))
small = st.one_of(st.none(), st.floats(width=32, allow_nan=True, allow_infinity=True))
texts = st.one_of(
    st.none(), st.sampled_from(["A", "B", "C", "F", "M", "?", "", "other"]), st.text(max_size=3)
)
records = st.lists(st.tuples(values, small, texts, texts), max_size=12)


@settings(max_examples=150, deadline=None)
@given(records)
def test_no_record_is_longer_than_the_radius_and_the_sum_is_exact(rows):
    batch = batch_of(rows)
    vectors = record_vectors(batch, LAYOUT, RADIUS)
    for vector in vectors:
        assert sum(int(value) ** 2 for value in vector) <= RADIUS**2
    assert (total_of(batch) == vectors.sum(axis=0)).all()
    assert (total_of(*(batch.slice(k, 1) for k in range(len(rows)))) == vectors.sum(axis=0)).all()


ends = st.one_of(st.floats(-1e-300, 1e-300), st.floats(-1e101, 1e101), st.sampled_from([0.0, 5e-324, 1e-99]))


@settings(max_examples=200, deadline=None)
@given(ends, ends, st.lists(values, max_size=4))
def test_no_bounds_that_an_analyst_may_choose_let_one_record_take_the_others_with_it(low, high, column):
    """An exception at one value would cost the party's whole sum: that value would show through all noise."""
    text = f"count; sum(x, {low!r}..{high!r}); variance(x); histogram(x: {low!r}..{high!r} by 1e101)"
    try:
        layout = Layout(parse_question(text))
    except InvalidInput:
        return
    batch = pa.record_batch({"x": pa.array([*column, low, high, 5e-324, -1e308], pa.float64())})
    vectors = record_vectors(batch, layout, RADIUS)
    for vector in vectors:
        assert sum(int(value) ** 2 for value in vector) <= RADIUS**2
    assert (total_of(batch, layout=layout) == vectors.sum(axis=0)).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9), st.integers(1 << 20, 1 << 44), st.integers(1, 20)
)
def test_amplitudes_are_certified_for_every_weight(importance, radius, rows):
    queries = parse_question(
        "; ".join(f"sum(c{k}, -{k + 1}..{k + 1})" for k in range(len(importance)))
    ).queries
    layout = Layout(Question(queries, tuple(importance)))
    try:
        amplitudes = layout.amplitudes(radius, rows)
    except InvalidInput:
        assert (
            radius / rows / layout.sensitivity * min(w * (k + 1) for k, w in enumerate(layout.weights)) < 300
        )
        return
    used = rows**2 * sum(amplitude**2 for amplitude in amplitudes)
    assert 0.98 * radius**2 < used <= radius**2


def test_weights_give_every_block_the_same_relative_error_unless_importance_says_otherwise():
    layout = Layout(parse_question("count; sum(age, -110..110); histogram(sex: F|M); mean(stay, 0..60)"))
    units = layout.entry_units(RADIUS)
    relative = [units[layout.place(block)][0] / block.sensitivity for block in layout.blocks]
    assert [type(block) for block in layout.blocks] == [Records, Total, Cells, Missing, Centred]
    assert layout.sensitivity == pytest.approx(2), "nobody is in Missing and in Centred"
    assert relative == pytest.approx([2] * 5, rel=1e-6)
    weighted = Layout(parse_question("count importance 16; histogram(sex: F|M)"))
    first, second = (weighted.entry_units(RADIUS)[weighted.place(block)][0] for block in weighted.blocks)
    assert second / first == pytest.approx(2, rel=1e-6)


def test_one_release_has_sqrt_k_times_less_noise_than_k_releases():
    """Noise is proportional to sensitivity, and to 1/ε where ε is split evenly over k queries."""
    k = 20
    layout = Layout(parse_question("; ".join(f"histogram(c{j}: A|B)" for j in range(k))))
    together = layout.entry_units(RADIUS)[0]  # noise of a count, per unit of noise
    one_by_one = k * Layout(parse_question("histogram(c: A|B)")).entry_units(RADIUS)[0]
    assert one_by_one / together == pytest.approx(math.sqrt(k), rel=1e-6)


def test_a_record_without_a_value_weighs_as_much_as_the_longest_with_one():
    layout = Layout(
        parse_question("count; variance(age, 0..110) importance 16; sum(age, -9..9); mean(stay, 0..60)")
    )
    assert sum(isinstance(block, Missing) for block in layout.blocks) == 2
    rows = [(None, None, "", ""), (110.0, 60.0, "", ""), (None, 0.0, "", ""), (110.0, None, "", "")]
    lengths = [math.hypot(*vector) for vector in record_vectors(batch_of(rows), layout, RADIUS).tolist()]
    assert lengths == pytest.approx([RADIUS] * 4, rel=1e-6)
    assert max(lengths) <= RADIUS


def test_the_rules_for_values():
    rows = [
        (None, 1.0, "A", "F"),  # a missing age
        (float("nan"), 59.5, "B", None),
        (float("inf"), 60.0, "Z", "M"),  # clamped to 110; the last bin includes its end; an unknown category
        (-300.0, -1.0, None, "x"),
        (54.9, float("nan"), "C", "F"),
    ]
    total = total_of(batch_of(rows))
    tables = {"x".join(a.column for a in b.axes): b for b in LAYOUT.blocks if isinstance(b, Cells)}
    assert entry(total, tables["diagnosis"]) == pytest.approx([1, 1, 1, 2])
    table = entry(total, tables["diagnosisxsex"]).reshape(4, 3)
    assert table == pytest.approx(np.array([[1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1]]))
    ages, stays = entry(total, tables["age"]), entry(total, tables["stay"])
    edges = tables["age"].axes[0].domain.edges
    assert {k: round(v) for k, v in enumerate(ages) if v > 0.5} == {
        0: 1, int(np.searchsorted(edges, 54.9, "right")) - 1: 1, len(edges) - 2: 1, len(edges) - 1: 2,
    }  # fmt: skip
    assert {k: round(v) for k, v in enumerate(stays) if v > 0.5} == {0: 1, 1: 1, 59: 2, 60: 1}
    assert entry(total, Records()) == pytest.approx([5])
    assert entry(total, Missing("age")) == pytest.approx([2])
    (of_ages,) = (block for block in LAYOUT.blocks if isinstance(block, Total))
    assert entry(total, of_ages) == pytest.approx([110 - 110 + 54.9])


@pytest.mark.parametrize("x", [0.3, 0.7, 0.1 * 3, np.nextafter(0.3, 0), 0.30000000000000004, 1.0, 0.0])
def test_a_value_counts_in_the_bin_whose_edges_hold_it(x):
    layout = Layout(parse_question("histogram(x: 0..1 by 0.1)"))
    axis = layout.question.queries[0].axis
    total = total_of(pa.record_batch({"x": [x]}), layout=layout)
    (cell,) = np.flatnonzero(total)
    edges = axis.domain.edges
    assert edges[cell] <= x < edges[cell + 1] or (x == 1.0 and cell == 9)


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.string_view(),
        pa.binary_view(),
        "dictionary",
    ],
)
def test_categories_are_found_whatever_the_column_is_stored_as(kind):
    layout = Layout(parse_question("histogram(code: 1|2|10)"))
    texts = ["1", "10", "2", "2", "7", None]
    if kind == "dictionary":
        array = pa.array(texts).dictionary_encode()
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        array = pa.array([None if text is None else int(text) for text in texts], kind)
    else:
        array = pa.array(texts).cast(kind)
    total = total_of(pa.record_batch({"code": array}), layout=layout)
    assert entry(total, layout.blocks[0], layout) == pytest.approx([1, 2, 1, 2])


def test_numbers_that_are_not_whole_are_no_category():
    layout = Layout(parse_question("histogram(code: 1|2)"))
    array = pa.array([1.0, 1.5, float("nan"), float("inf"), -1e300, None])
    total = total_of(pa.record_batch({"code": array}), layout=layout)
    assert entry(total, layout.blocks[0], layout) == pytest.approx([1, 0, 5])


@pytest.mark.parametrize("large", [2**62, 2**63, 2**64 - 1])
def test_a_whole_number_beyond_int64_is_no_category_and_takes_no_other_record_with_it(large):
    layout = Layout(parse_question("histogram(code: 1|2)"))
    array = pa.array([1, 2, 2, large, None], pa.uint64())
    total = total_of(pa.record_batch({"code": array}), layout=layout)
    assert entry(total, layout.blocks[0], layout) == pytest.approx([1, 2, 2])


def test_a_column_without_a_single_value_counts_as_other():
    layout = Layout(parse_question("count; histogram(code: A|B)"))
    total = total_of(pa.record_batch({"code": pa.nulls(3)}), layout=layout)
    assert entry(total, layout.blocks[1], layout) == pytest.approx([0, 0, 3])


@pytest.mark.parametrize("kind", [pa.int16(), pa.float32(), pa.decimal128(8, 2), pa.string(), "dictionary"])
def test_numbers_are_found_whatever_the_column_is_stored_as(kind):
    layout = Layout(parse_question("sum(x, 0..100); mean(x)"))
    numbers = pa.array([1, 20, None, 300, -4], pa.int16())
    array = numbers.cast(pa.string()).dictionary_encode() if kind == "dictionary" else numbers.cast(kind)
    total = total_of(pa.record_batch({"x": array}), layout=layout)
    assert entry(total, layout.blocks[0], layout) == pytest.approx([121])
    assert entry(total, layout.blocks[1], layout) == pytest.approx([4])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=8), st.integers(1 << 16, 1 << 44))
def test_scaling_is_exact_and_loses_little(values, radius):
    found = scaled_to(np.array(values, np.int64), radius)
    before, after = (sum(int(v) ** 2 for v in vector) for vector in (values, found))
    if before <= radius**2:
        assert found.tolist() == values
    else:
        assert after <= radius**2
        assert math.isqrt(after) >= radius - len(values) - 2
        assert all(int(a) * b >= 0 for a, b in zip(found, values, strict=True))


@pytest.fixture
def owned(tmp_path):
    """Owner "many" has seven records, others one or two; one record has no owner."""
    owners = ["many"] * 7 + ["few", "few", "one", None]
    table = pa.table({"who": owners, "x": np.arange(11.0), "c": list("AABABABABAB")})
    pa.parquet.write_table(table, tmp_path / "owned.parquet", row_group_size=3)
    pa.csv.write_csv(table, tmp_path / "owned.csv")
    views = table.cast(pa.schema({"who": pa.string_view(), "x": pa.float64(), "c": pa.binary_view()}))
    pa.parquet.write_table(views, tmp_path / "views.parquet")
    return table, tmp_path


@pytest.mark.parametrize("name", ["owned.parquet", "owned.csv", "views.parquet"])
def test_an_owner_is_bounded_and_others_count_in_full(owned, name):
    table, directory = owned
    layout = Layout(parse_question("count; sum(x, 0..10); histogram(c: A|B)"))
    path = directory / name
    found = party_sum(path, layout, RADIUS, Owners("who", 2))
    assert found.private_notes == ()
    batch = table.combine_chunks().to_batches()[0]
    many = record_vectors(batch.slice(0, 7), layout, RADIUS, 2).sum(axis=0)
    others = record_vectors(batch.slice(7, 3), layout, RADIUS, 2).sum(axis=0)
    assert sum(int(value) ** 2 for value in many) > RADIUS**2
    assert (found.vector == others + scaled_to(many, RADIUS)).all()
    roomy = party_sum(path, layout, RADIUS, Owners("who", 7))
    everyone = record_vectors(batch.slice(0, 10), layout, RADIUS, 7).sum(axis=0)
    assert (roomy.vector == everyone).all()


def test_removing_an_owner_moves_the_sum_by_at_most_the_radius(owned):
    table, directory = owned
    layout = Layout(parse_question("count; mean(x, 0..10); histogram(c: A|B)"))
    whole = party_sum(directory / "owned.parquet", layout, RADIUS, Owners("who", 2)).vector
    for owner in ("many", "few", "one"):
        pa.parquet.write_table(table.filter(pa.compute.field("who") != owner), directory / "less.parquet")
        less = party_sum(directory / "less.parquet", layout, RADIUS, Owners("who", 2)).vector
        assert 0 < sum(int(value) ** 2 for value in whole - less) <= RADIUS**2


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_spaces_make_no_second_owner_and_signs_for_missing_name_nobody(tmp_path, suffix):
    names = [b"one", b" one", b"one\t", b"NA", b"na", b"?", b" ", b"", b"\xff", b"\xfe"]
    path = tmp_path / f"owners.{suffix}"
    if suffix == "csv":
        path.write_bytes(b"who,x\n" + b"".join(name + b",1\n" for name in names))
    else:
        pa.parquet.write_table(pa.table({"who": pa.array(names, pa.binary()), "x": [1] * len(names)}), path)
    layout = Layout(parse_question("count"))
    found = party_sum(path, layout, RADIUS, Owners("who", 1)).vector
    assert found / RADIUS * layout.entry_units(RADIUS) == pytest.approx([3]), "one, and the two odd bytes"


def test_owners_that_are_not_a_number_are_nobody(tmp_path):
    table = pa.table({"who": [7.0, math.nan, math.nan, None], "x": [1, 1, 1, 1]})
    pa.parquet.write_table(table, tmp_path / "owners.parquet")
    layout = Layout(parse_question("count"))
    found = party_sum(tmp_path / "owners.parquet", layout, RADIUS, Owners("who", 1)).vector
    assert found / RADIUS * layout.entry_units(RADIUS) == pytest.approx([1])


def test_one_owner_with_many_records_costs_no_further_pass(owned, monkeypatch):
    """The time of an answer must not show whether anybody has more records than count in full."""
    from skelmix.statistics import party

    passes = []
    original = party.batches

    def watched(path, columns, **options):
        passes.append(path)
        return original(path, columns, **options)

    monkeypatch.setattr(party, "batches", watched)
    _, directory = owned
    layout = Layout(parse_question("count"))
    counts = []
    for rows in (2, 7):  # "many" has seven records
        passes.clear()
        party_sum(directory / "owned.parquet", layout, RADIUS, Owners("who", rows))
        counts.append(len(passes))
    assert counts == [3, 3]
