"""A party's file: streamed, read record by record; whatever is wrong with it stays with the party."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import skelmix.statistics.files as files
from skelmix.datasets.hospital_files import hospitals
from skelmix.statistics import Layout, Owners, parse_question, party_sum
from skelmix.statistics.party import file_notes

RADIUS = 1 << 34
QUESTION = parse_question("count; mean(age, 0..110); histogram(sex: F|M); crosstab(sex, diagnosis: A|B|C)")
LAYOUT = Layout(QUESTION)
HEADER = "patient,age,sex,diagnosis\n"


def write(path, *lines):
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    return path


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter(tmp_path):
    lines = ["p1,30,F,A", "p2,,M,B", '"p3",200,"M",C']
    path = write(tmp_path / "plain.csv", *lines)
    marked = tmp_path / "WINDOWS.CSV"
    header, rest = path.read_bytes().split(b"\n", 1)
    quoted = b",".join(b'"%b"' % name for name in header.split(b","))
    marked.write_bytes(b"\xef\xbb\xbf" + (quoted + b"\n" + rest).replace(b"\n", b"\r\n").rstrip())
    one, two = (party_sum(file, LAYOUT, RADIUS) for file in (path, marked))
    assert one.private_notes == two.private_notes == ()
    assert (one.vector == two.vector).all()
    assert one.vector.any()


def test_csv_and_parquet_give_the_same_vector(tmp_path):
    (path,) = hospitals(tmp_path, count=1, records=500)
    table = pa.csv.read_csv(path)
    pa.parquet.write_table(table, tmp_path / "same.parquet", row_group_size=64)
    one, two = (party_sum(file, LAYOUT, RADIUS) for file in (path, tmp_path / "same.parquet"))
    assert one.private_notes == two.private_notes == ()
    assert one.vector.any()
    assert (one.vector == two.vector).all()


def test_the_size_of_batches_does_not_matter(tmp_path, monkeypatch):
    (path,) = hospitals(tmp_path, count=1, records=500)
    pa.parquet.write_table(pa.csv.read_csv(path), tmp_path / "same.parquet")
    before = party_sum(tmp_path / "same.parquet", LAYOUT, RADIUS).vector
    monkeypatch.setattr(files, "BATCH", 7)
    assert (party_sum(tmp_path / "same.parquet", LAYOUT, RADIUS).vector == before).all()


def test_a_file_is_never_in_memory_as_a_whole_however_its_rows_are_grouped(tmp_path):
    path, records = tmp_path / "one-group.parquet", 2_000_000
    column = np.random.default_rng(1).normal(size=records)
    pa.parquet.write_table(
        pa.table({"x": column}), path, row_group_size=records, compression="none", use_dictionary=False
    )
    before, most, seen = pa.total_allocated_bytes(), 0, 0
    for batch in files.batches(path, ["x"]):
        seen += len(batch)
        most = max(most, pa.total_allocated_bytes() - before)
    assert seen == records
    assert most < column.nbytes / 3


BAD = [
    "p9,old,F,A",  # text where a number is needed
    "p9,12,F",  # a cell too few
    "p9,12,F,A,B",  # a cell too many
    'p9,12,"F,A',  # a quote that is not closed
    'p9,12,F"x,"A',
    'p9,12,"F"x,A',
    f"p9,12,{'F' * (1 << 20)},A",
    f"p9,12,{'F' * (9 << 20)},A",
    "p9,12\rF,A",
]
FINE = [
    'p9,12,"F",A',
    'p9,12,"F,""x""",A',
    "p9,1e999,F,A",
    f"p9,{'9' * 400},F,A",
    "p9,-1e-999,F,A",
    "p9,nan,\xe4,A",
    f"p9,12,{'F' * 200_000},A",  # longer than Python's csv module takes
]


@pytest.mark.parametrize("line", BAD + FINE, ids=lambda line: line[:20])
def test_a_bad_record_changes_nothing_about_the_others(tmp_path, line):
    """Neighbours differ by one record: by its own vector, never by the whole file."""
    good = ["p1,30,F,A", "p2,,M,B", "p3,200,M,C"]
    without = party_sum(write(tmp_path / "without.csv", *good), LAYOUT, RADIUS)
    path = write(tmp_path / "with.csv", good[0], "", line, *good[1:])
    added = party_sum(path, LAYOUT, RADIUS)
    difference = added.vector - without.vector
    assert sum(int(value) ** 2 for value in difference) <= RADIUS**2
    assert difference.any() == (line in FINE or line == BAD[0])
    assert without.private_notes == ()
    expected = [] if line in FINE else [f"{path}, line 4: "]
    assert [note[: len(str(path)) + 10] for note in added.private_notes] == expected


def test_bytes_that_are_not_utf8_concern_their_record_only(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes(HEADER.encode() + b"p1,30,F,A\np2,\xff,\xe4,B\np3,20,M,A\n")
    found = party_sum(path, LAYOUT, RADIUS)
    units = LAYOUT.entry_units(RADIUS)
    answers = found.vector / RADIUS * units
    assert answers[LAYOUT.places(QUESTION.queries[0])[0]] == pytest.approx([3])
    assert answers[LAYOUT.places(QUESTION.queries[2])[0]] == pytest.approx([1, 1, 1])
    assert "line 3: age" in found.private_notes[0]


@pytest.mark.parametrize(
    "line", [b"\xe4", b"p9,12,\xe4", b"p9,12,F,A,\xe4", b'"p9,12,F,A",\xe4', b'"p9,\xe4","",F', b"\xe4\r"]
)
@pytest.mark.parametrize("owners", [None, Owners("patient", 1)])
def test_a_row_with_the_wrong_cells_that_is_not_utf8_concerns_itself_only(tmp_path, line, owners):
    """Arrow cannot show such a row to whoever decides about it, and would give up the whole file."""
    good = ["p1,30,F,A", "p2,,M,B", '"p3",200,"M",C']
    without = party_sum(write(tmp_path / "without.csv", *good), LAYOUT, RADIUS, owners)
    path = tmp_path / "with.csv"
    path.write_bytes((tmp_path / "without.csv").read_bytes() + line + b"\np4,1,F,\xe4\n")
    added = party_sum(path, LAYOUT, RADIUS, owners)
    last = party_sum(write(tmp_path / "last.csv", "p4,1,F,?"), LAYOUT, RADIUS, owners)
    assert (added.vector == without.vector + last.vector).all()
    assert last.vector.any()
    assert [note[: len(str(path)) + 9] for note in added.private_notes] == [f"{path}, line 5:"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("column", ["age", "sex"])
def test_text_of_parquet_that_is_not_utf8_concerns_its_record_only(tmp_path, kind, column):
    """Arrow does not check text when it is written, nor when it is cast to text."""
    values = {"age": [b"30", b"1", b"20"], "sex": [b"F", b"M", b"M"], "diagnosis": [b"A"] * 3}
    values[column][1] = b"\xff\xe4"
    binary = pa.large_binary() if kind == pa.large_string() else pa.binary()
    arrays = {}
    for name, texts in values.items():
        plain = pa.array(texts, binary)
        arrays[name] = pa.Array.from_buffers(kind, len(plain), plain.buffers())
    path = tmp_path / "text.parquet"
    pa.parquet.write_table(pa.table(arrays), path)
    found = party_sum(path, LAYOUT, RADIUS)
    answers = found.vector / RADIUS * LAYOUT.entry_units(RADIUS)
    assert answers[LAYOUT.places(QUESTION.queries[0])[0]] == pytest.approx([3])
    women, men, other = answers[LAYOUT.places(QUESTION.queries[2])[0]]
    assert (women, men + other) == (pytest.approx(1), pytest.approx(2))


def test_a_long_cell_beside_a_bad_line_keeps_the_sum(tmp_path):
    path = write(tmp_path / "long.csv", "p1,30,F,A", f"p2,30,{'F' * 200_000},A", "p3,old,F,A")
    found = party_sum(path, LAYOUT, RADIUS)
    assert found.vector.any()
    assert [note.partition(", ")[2][:7] for note in found.private_notes] == ["line 3:", "line 4:"]


def test_notes_that_fail_do_not_change_the_sum(tmp_path, monkeypatch):
    path = write(tmp_path / "bad.csv", "p1,30,F,A", "p2,old,F,A")
    before = party_sum(path, LAYOUT, RADIUS).vector
    for name in ("csv_problems", "arrow.not_numbers"):
        monkeypatch.setattr(f"skelmix.statistics.party.{name}", lambda *_: 1 / 0)
        found = party_sum(path, LAYOUT, RADIUS)
        assert (found.vector == before).all()
        assert len(found.private_notes) == 1


def test_the_owner_of_a_file_is_told_what_is_wrong_with_it(tmp_path):
    path = write(tmp_path / "bad.csv", "p1,30,F,A", "p2,old,F,A")
    (note,) = file_notes(path, ["age", "sex"], ["age"])
    assert "line 3: age = 'old' is not a number" in note
    (note,) = file_notes(path, ["height"], [])
    assert "no column named 'height'" in note
    assert "counts as empty" in note


def test_other_separators_are_named(tmp_path):
    (tmp_path / "semicolons.csv").write_text("age;sex;diagnosis\n30;F;A\n")
    (note,) = party_sum(tmp_path / "semicolons.csv", LAYOUT, RADIUS).private_notes
    assert "separated by commas, not by ';'" in note


def test_many_bad_lines_are_listed_in_part(tmp_path):
    path = write(tmp_path / "bad.csv", *["p1,what,F,A"] * 30)
    notes = party_sum(path, LAYOUT, RADIUS).private_notes
    assert len(notes) == 11
    assert notes[0].endswith("line 2: age = 'what' is not a number; it counts as missing")
    assert notes[-1].endswith("and 20 more lines")


def test_text_numbers_in_parquet_are_reported_by_record(tmp_path):
    table = pa.table({"age": ["30", "old", "20"], "sex": ["F"] * 3, "diagnosis": ["A"] * 3})
    pa.parquet.write_table(table, tmp_path / "text.parquet")
    (note,) = party_sum(tmp_path / "text.parquet", LAYOUT, RADIUS).private_notes
    assert "record 2: age is not a number" in note


def broken(directory):
    (directory / "empty.csv").write_text("")
    (directory / "text.parquet").write_text("this is no table")
    (directory / "binary.csv").write_bytes(bytes(range(256)) * 4)
    (directory / "no-column.csv").write_text("age,sex\n3,F\n")
    (directory / "twice.csv").write_text("age,age,sex,diagnosis\n3,4,F,A\n")
    (directory / "table.xlsx").write_text("")
    pa.parquet.write_table(pa.table({"age": [1], "sex": ["F"]}), directory / "no-category.parquet")
    good = pa.table({"age": np.arange(5000) % 90, "sex": ["F"] * 5000, "diagnosis": ["A"] * 5000})
    pa.parquet.write_table(good, directory / "whole.parquet", row_group_size=100, compression="none")
    content = (directory / "whole.parquet").read_bytes()
    (directory / "cut.parquet").write_bytes(content[: len(content) // 2])
    damaged = bytearray(content)
    damaged[len(damaged) // 3 : len(damaged) // 3 + 60] = bytes(60)
    (directory / "damaged.parquet").write_bytes(damaged)
    (directory / "folder.csv").mkdir()


@pytest.mark.parametrize(
    "name",
    [
        "absent.csv", "empty.csv", "text.parquet", "binary.csv", "no-column.csv", "twice.csv", "table.xlsx",
        "no-category.parquet", "cut.parquet", "folder.csv",
    ],
)  # fmt: skip
@pytest.mark.parametrize("owners", [None, Owners("patient", 3)])
def test_a_bad_file_gives_the_vector_of_an_empty_party_and_says_why_inside(tmp_path, name, owners):
    broken(tmp_path)
    found = party_sum(tmp_path / name, LAYOUT, RADIUS, owners)
    nobody = party_sum(write(tmp_path / "nobody.csv"), LAYOUT, RADIUS, owners)
    assert nobody.private_notes == ()
    assert found.vector.dtype == nobody.vector.dtype
    assert found.vector.tolist() == nobody.vector.tolist() == [0] * LAYOUT.dimension
    (note,) = found.private_notes
    assert name in note
    assert "counts as empty" in note
    assert "private" not in repr(found)


@pytest.mark.parametrize("column", ["age", "sex"])
@pytest.mark.parametrize("value", [[1], {"x": 1}, dt.date(2024, 1, 2), dt.datetime(2024, 1, 2), dt.time(3)])
def test_the_type_that_a_writer_chose_by_one_value_concerns_that_value_only(tmp_path, column, value):
    """A column without any value has no type: the first value would decide about the whole party."""
    rows = {"age": [30, 40], "sex": ["F", "M"], "diagnosis": ["A", "B"]}
    sums = []
    for values in ([None, None], [None, value]):
        pa.parquet.write_table(pa.table(rows | {column: values}), tmp_path / "typed.parquet")
        sums.append(party_sum(tmp_path / "typed.parquet", LAYOUT, RADIUS))
    assert sums[0].vector.any()
    assert (sums[0].vector == sums[1].vector).all()
    assert sums[0].private_notes == ()
    (note,) = sums[1].private_notes
    assert {"age": "record 2: age is not a number", "sex": "sex holds "}[column] in note


def test_a_file_with_nothing_but_its_header_is_a_table_with_or_without_a_line_end(tmp_path):
    for end in ("", "\n", "\r\n"):
        (tmp_path / "header.csv").write_bytes(b"patient,age,sex,diagnosis" + end.encode())
        found = party_sum(tmp_path / "header.csv", LAYOUT, RADIUS)
        assert found.usable, "as with a first record, which must not decide whether anything is released"
        assert not found.vector.any()


@pytest.mark.parametrize(
    "header",
    [" patient , age,sex ,diagnosis", 'patient,"age","sex","diagnosis"', "caf\xe9,age,sex,diagnosis"],
)
def test_names_of_columns_are_found_between_spaces_and_beside_names_that_are_not_utf8(tmp_path, header):
    row = "p1,30,F,A\n"
    plain = party_sum(write(tmp_path / "plain.csv", row.strip()), LAYOUT, RADIUS)
    (tmp_path / "other.csv").write_bytes(f"{header}\n{row}".encode("latin-1"))
    for layout in (LAYOUT, Layout(parse_question("count"))):
        found = party_sum(tmp_path / "other.csv", layout, RADIUS)
        assert (found.usable, found.private_notes) == (True, ())
        assert layout is not LAYOUT or (found.vector == plain.vector).all()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("age,sex\n".encode("utf-16"), "not plain text (UTF-16"),
        (b'age, "sex"\n', "its quotes do not match"),
        (b"age,sex\r1,F\r", "a carriage return alone"),
    ],
)
def test_a_first_line_that_cannot_be_read_is_said_in_words(tmp_path, content, problem):
    (tmp_path / "odd.csv").write_bytes(content)
    (note,) = party_sum(tmp_path / "odd.csv", LAYOUT, RADIUS).private_notes
    assert problem in note
    assert note.isprintable()


def test_digits_of_other_scripts_are_listed_among_what_is_no_number(tmp_path):
    path = write(tmp_path / "digits.csv", "p1,\u0663,F,A")
    (note,) = party_sum(path, LAYOUT, RADIUS).private_notes
    assert "line 2: age = '\u0663' is not a number" in note


def test_damaged_pages_never_raise(tmp_path):
    broken(tmp_path)
    assert party_sum(tmp_path / "damaged.parquet", LAYOUT, RADIUS).vector.shape == (LAYOUT.dimension,)


def test_a_count_alone_needs_no_column(tmp_path):
    layout = Layout(parse_question("count"))
    pa.parquet.write_table(pa.table({"a": np.arange(1000)}), tmp_path / "a.parquet", row_group_size=300)
    path = write(tmp_path / "b.csv", "p1,30,F,A", "p2,1,M,B")
    for file, count in ((tmp_path / "a.parquet", 1000), (path, 2)):
        found = party_sum(file, layout, RADIUS).vector
        assert found / RADIUS * layout.entry_units(RADIUS) == pytest.approx([count])
