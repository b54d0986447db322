"""The examples run, in small."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.idx_files import idx_bytes

EXAMPLES = Path(__file__).parents[2] / "examples"


def _run(name: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_private_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    names = _run("private_histogram.py", "--parties", "60", "--answers", "8", monkeypatch=monkeypatch)
    counts, true = names["counts"], names["true"]
    assert isinstance(counts, np.ndarray)
    assert counts.shape == (8,)
    assert names["result"].participants == 60  # type: ignore[attr-defined]
    # eight deviations: a chance of 1e-14 per coordinate, and 0.5 for rounding the counts
    assert np.abs(counts - true).max() < 8 * names["plan"].predicted.mse ** 0.5 + 0.5  # type: ignore[attr-defined]


def test_train_cnn_6_bits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public = np.random.default_rng(0)
    for split, count in (("train", 80), ("t10k", 20)):
        images = public.integers(0, 256, (count, 8, 8)).astype("u1")
        (tmp_path / f"{split}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (tmp_path / f"{split}-labels-idx1-ubyte").write_bytes(idx_bytes((np.arange(count) % 3).astype("u1")))
    arguments = ["--data", str(tmp_path), "--rounds", "2", "--cohort", "40", "--epsilon", "8"]
    names = _run("train_cnn_6_bits.py", *arguments, monkeypatch=monkeypatch)
    result = names["result"]
    assert (result.rounds, result.private) == (2, True)  # type: ignore[attr-defined]
    assert result.report.epsilon <= 8  # type: ignore[attr-defined]
    assert "with 6 bits per weight" in capsys.readouterr().out
