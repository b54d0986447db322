"""The options that commands share mean the same everywhere."""

import warnings

from skelmix.planning import Cohort

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer itself imports what click deprecates
    from skelmix.cli.options import build_cohort


def test_every_option_of_the_cohort_arrives():
    found = build_cohort(10, 500, 0.1, 2, "fixed")
    assert found == Cohort(expected=10, population=500, dropout_tolerance=0.1, colluding=2, sampling="fixed")


def test_without_a_population_everyone_is_in_every_round():
    assert build_cohort(10, None, 0.0, 0, "none").population == 10
