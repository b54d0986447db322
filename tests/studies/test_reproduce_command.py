"""`skelmix reproduce`: every study runs end to end, says how long it takes, explains misplaced options."""

import resource
from dataclasses import replace
from pathlib import Path

import pytest
from study_for_tests import STUDY

from helpers.command import skelmix
from skelmix.cli.reproduce import STUDIES, _forecast
from skelmix.datasets.fetching import fetch
from skelmix.errors import DataUnavailable
from skelmix.studies.rows import read


def test_every_study_runs_end_to_end_at_toy_size(tmp_path: Path) -> None:
    try:
        for name in ("mnist", "fashion-mnist"):
            fetch(name, progress=False)
    except DataUnavailable as error:
        pytest.skip(str(error))
    before = _seconds_of_children()
    # some 55 seconds of one core; the limit is for machines that do much else
    ran = skelmix("reproduce", "--all", "--quick", "--output", tmp_path, timeout=1500)
    assert ran.returncode == 0, ran.stderr
    assert _seconds_of_children() - before < 180, "every study within three minutes of one core"
    for name in STUDIES:
        _, rows = read(tmp_path / f"{name}-quick.csv", ())
        assert rows, f"{name} measured nothing"
        assert "settings are not measured yet" not in (tmp_path / f"{name}-quick.md").read_text()
        assert (tmp_path / f"{name}-quick.png").stat().st_size > 1_000


def _seconds_of_children() -> float:
    """Time of processors, which, unlike that of clocks, does not depend on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_time_is_told_before_anything_is_measured() -> None:
    study = replace(STUDY, seconds_per_setting=60.0)
    assert "30 of 40 settings to measure, about 15 min on free cores with 2 processes" in _forecast(
        study, 30, 40, 2, False
    )
    assert "about 5.0 hours on free cores with 1 process;" in _forecast(study, 300, 400, 1, False)


def test_options_of_all_before_a_study_are_refused(tmp_path: Path) -> None:
    ran = skelmix("reproduce", "--quick", "figure1", cwd=tmp_path)
    assert ran.returncode != 0
    assert "options before 'figure1' belong to --all; write them after it" in " ".join(ran.stderr.split())


def test_a_study_or_all_must_be_named(tmp_path: Path) -> None:
    ran = skelmix("reproduce", "--quick", cwd=tmp_path)
    assert ran.returncode != 0
    assert "name a study, or pass --all" in " ".join(ran.stderr.split())
