"""A file is replaced as a whole or not at all, also by several writers at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from skelmix.replacement import replacing


def test_the_new_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    for text in ("old", "new"):
        with replacing(target) as temporary:
            temporary.write_text(text)
            assert target.exists() == (text == "new")
        assert target.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_failure_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old")

    def torn() -> None:
        with replacing(target) as temporary:
            temporary.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        torn()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"plan.json": "old"}


def test_several_writers_at_once_do_not_share_their_temporary_file(tmp_path: Path) -> None:
    target, together = tmp_path / "data", Barrier(4, timeout=30)

    def write(letter: str) -> None:
        with replacing(target, shared=True) as temporary:
            together.wait()
            temporary.write_text(letter * 1000)
            together.wait()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, "abcd"))
    text = target.read_text()
    assert (len(text), len(set(text))) == (1000, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
