"""The options that commands share mean the same everywhere."""

import warnings

import pytest

from helpers.command import in_process
from skelmix.errors import InvalidInput
from skelmix.planning import AdaptiveClip, Cohort

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer itself imports what click deprecates
    from skelmix.cli.options import build_clip, build_cohort


def test_every_option_of_the_cohort_arrives():
    found = build_cohort(10, 500, 0.1, 2, "fixed")
    assert found == Cohort(expected=10, population=500, dropout_tolerance=0.1, colluding=2, sampling="fixed")


def test_without_a_population_everyone_is_in_every_round():
    assert build_cohort(10, None, 0.0, 0, "none").population == 10


def test_coin_and_cap_arrive_and_auto_proposes_the_smallest_cap():
    given = build_cohort(2_400, 60_000, 0.0, 0, "poisson", 0.1, "80", 1_000)
    assert (given.contribute, given.max_participations) == (0.1, 80)
    assert build_cohort(2_400, 60_000, 0.0, 0, "poisson", 0.1, "auto", 1_000).max_participations == 73
    with pytest.raises(InvalidInput, match="auto"):
        build_cohort(10, 500, 0.0, 0, "poisson", 1.0, "few", 10)


def test_options_of_the_adaptive_clip_arrive():
    assert build_clip("fixed", 2.0, None, None, None) == "fixed"
    assert build_clip("adaptive", 2.0, None, None, None) == AdaptiveClip(start=2.0)
    assert build_clip("adaptive", 1.0, 0.8, 0.5, 3.0) == AdaptiveClip(start=3.0, quantile=0.8, rate=0.5)
    with pytest.raises(InvalidInput, match=r"--clip-rate: .* give --clip adaptive"):
        build_clip("fixed", 1.0, None, 0.5, None)


@pytest.mark.parametrize(
    ("words", "explained"),
    [
        (("account",), "RUN is a run directory"),
        (("party",), "POLICY is the party's policy"),
        (("stats",), "MORE: files of further parties"),
        (("data", "fetch"), "NAME is mnist"),
        (("data", "verify"), "NAME is mnist"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_help_says_what_each_argument_is(words, explained):
    """In the command's own text: click 8.5 drops what typer says beside an argument."""
    assert explained in " ".join(in_process(*words, "--help").stdout.split())


def test_names_of_mechanisms_that_load_without_them_agree_with_the_registry(monkeypatch):
    from skelmix.mechanisms import names, registry

    assert list(names.EVERY) == list(registry.MECHANISMS)
    assert list(names.DISTRIBUTED) == [name for name, kind in registry.MECHANISMS.items() if kind.distributed]
    policy = pytest.importorskip("skelmix.flower.policy")
    assert policy.ClientPolicy().mechanisms == names.DISTRIBUTED
    with pytest.raises(InvalidInput, match="mechanisms has"):
        policy.ClientPolicy(mechanisms=("gaussian",))
    with pytest.raises(InvalidInput, match="mechanisms has"):
        policy.ClientPolicy(mechanisms=("cautious",))
    monkeypatch.setitem(registry.MECHANISMS, "cautious", registry.MECHANISMS["skellam"])
    assert policy.ClientPolicy(mechanisms=("cautious",)).mechanisms == ("cautious",)
