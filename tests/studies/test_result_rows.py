"""The result file survives kills, keeps what it has and says where it came from."""

import subprocess
from pathlib import Path

import pytest

from skelmix.errors import CorruptState
from skelmix.studies import rows
from skelmix.studies.rows import ResultFile, commit, read, text, value

SETTINGS, MEASURES = ("bits", "scale"), ("mse", "note")


def _write(path: Path, *measured: dict[str, object]) -> None:
    with ResultFile(path, SETTINGS, MEASURES) as file:
        file.announce("skelmix reproduce something --seeds 2")
        for row in measured:
            file.append(row)


@pytest.mark.parametrize("written", [None, 3, 0.1, 1e-300, 2.0, 'a, "b"\nc', "γ = 4"])
def test_a_value_comes_back_as_it_was(tmp_path: Path, written: object) -> None:
    assert value(text(written)) == written or isinstance(written, str)
    path = tmp_path / "rows.csv"
    single_line = written.replace("\n", " ") if isinstance(written, str) else written
    _write(path, {"bits": 1, "scale": None, "mse": 0.5, "note": single_line})
    _, found = read(path, SETTINGS)
    assert found[("1", "")]["note"] == single_line


def test_the_header_names_command_versions_and_date(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.csv"
    _write(path, {"bits": 1, "mse": 0.5})
    lines = path.read_text().splitlines()
    assert lines[0] == "# skelmix reproduce something --seeds 2"
    assert "UTC" in lines[1]
    assert "numpy" in lines[1]
    assert lines[2] == "bits,scale,mse,note"


def test_the_header_names_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    monkeypatch.setattr(rows, "commit", lambda: "abc1234-dirty")
    _write(path, {"bits": 1, "mse": 0.5})
    monkeypatch.setattr(rows, "commit", lambda: None)
    _write(path, {"bits": 2, "mse": 0.5})
    headers = [line for line in path.read_text().splitlines() if "UTC" in line]
    assert ["; commit abc1234-dirty; python" in line for line in headers] == [True, False]
    assert "commit" not in headers[1]


def test_a_commit_is_that_of_the_package_and_says_when_files_differ(tmp_path: Path) -> None:
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    assert commit(package) is None

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        ran = subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return ran.stdout.strip()

    git("init", "-q")
    (tmp_path / "results").write_text("1")
    git("add", "results")
    git("commit", "-qm", "another project's checkout")
    assert commit(package) is None
    git("add", "src")
    git("commit", "-qm", "the package")
    assert commit(package) == git("rev-parse", "--short", "HEAD")
    (tmp_path / "results").write_text("2")
    assert commit(package) == git("rev-parse", "--short", "HEAD")
    (package / "__init__.py").write_text("changed = True")
    assert commit(package) == git("rev-parse", "--short", "HEAD") + "-dirty"


def test_a_torn_last_line_is_dropped_and_the_next_row_stands_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    _write(path, {"bits": 1, "mse": 0.5}, {"bits": 2, "mse": 0.25})
    whole = path.read_bytes()
    for cut in range(1, 8):
        path.write_bytes(whole[:-cut])
        with ResultFile(path, SETTINGS, MEASURES) as file:
            assert list(file.rows) == [("1", "")]
            file.append({"bits": 3, "mse": 7.0})
        _, found = read(path, SETTINGS)
        assert list(found) == [("1", ""), ("3", "")]


def test_other_columns_start_a_new_file_and_keep_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    _write(path, {"bits": 1, "mse": 0.5})
    before = path.read_text()
    with ResultFile(path, ("bits", "dimension"), MEASURES) as file:
        assert not file.rows
        file.announce("again")
        file.append({"bits": 1, "dimension": 4, "mse": 0.5})
    assert (tmp_path / "rows.csv.old").read_text() == before
    assert read(path, ("bits", "dimension"))[0] == ("bits", "dimension", "mse", "note")


def test_two_writers_of_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with ResultFile(path, SETTINGS, MEASURES), pytest.raises(CorruptState, match="another process"):
        ResultFile(path, SETTINGS, MEASURES).__enter__()
