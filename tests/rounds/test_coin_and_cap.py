"""Coin and cap: who sends a vector follows the stated law, and no upload is ever forgotten."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from helpers.hypothesis_tests import follows
from helpers.injected_entropy import InjectedEntropy
from skelmix.errors import CorruptState
from skelmix.noise.entropy import ReproducibleEntropy, system_entropy
from skelmix.planning import Cohort
from skelmix.rounds import coin_and_cap
from skelmix.rounds.coin_and_cap import SimulatedChoices, sends_vector

EVERYONE = np.arange(50)


@pytest.mark.parametrize("wrong", [0.0, 0.05])
def test_contributions_of_a_round_are_binomial_and_another_coin_is_noticed(wrong):
    choices = SimulatedChoices(Cohort.everyone(50, contribute=0.3))
    sizes = np.array([choices.of(EVERYONE, system_entropy()).size for _ in range(4_000)])
    assert follows(sizes, binom(50, 0.3 + wrong).cdf, [8, 12, 15, 18, 22]) == (not wrong)


@pytest.mark.parametrize("wrong", [0.0, 0.05])
def test_one_participants_coin_has_the_same_law(wrong):
    cohort = Cohort.everyone(50, contribute=0.3)
    tosses = np.array([sends_vector(cohort, 1, system_entropy()) for _ in range(20_000)])
    assert follows(tosses, binom(1, 0.3 + wrong).cdf, [0]) == (not wrong)


@pytest.mark.parametrize(("distance", "heads"), [(-1, True), (1, False)])
def test_the_coin_is_exact_to_64_bits(distance, heads):
    threshold = int(Fraction(0.3) * 2**64)
    cohort = Cohort.everyone(50, contribute=0.3)
    toss = InjectedEntropy(np.array([threshold + distance], np.uint64))
    assert sends_vector(cohort, 1, toss) == heads


def test_the_coin_is_tossed_at_the_cap_too():
    entropy = InjectedEntropy(np.zeros(1, np.uint64))
    assert not sends_vector(Cohort.everyone(50, contribute=0.3, max_participations=2), 3, entropy)
    assert not entropy.pieces, "the same randomness is used, whatever comes of it"


def test_every_upload_counts_whatever_the_coin_said():
    choices = SimulatedChoices(Cohort.everyone(50, contribute=0.01, max_participations=2))
    for _ in range(2):
        choices.of(EVERYONE[:25], ReproducibleEntropy(1))
    certain = InjectedEntropy(np.zeros(50, np.uint64))  # all heads
    assert choices.of(EVERYONE, certain).tolist() == list(range(25, 50))


def opened(path, charged, plan="a", population=50):
    cohort = Cohort.everyone(population, max_participations=2)
    return SimulatedChoices(cohort, path, plan_digest=plan, charged=charged)


def test_counts_survive_a_restart_and_are_written_before_anyone_sends(tmp_path, monkeypatch):
    path = tmp_path / "participations.npy"
    assert opened(path, 0).of(EVERYONE[:10], system_entropy()).size == 10
    assert np.load(path).tolist() == [1] * 10 + [0] * 40
    second = opened(path, 1)
    assert second.of(EVERYONE[:10], system_entropy()).size == 10
    assert opened(path, 2).of(EVERYONE[:12], system_entropy()).tolist() == [10, 11]

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(coin_and_cap, "write_atomically", crash)
    with pytest.raises(KeyboardInterrupt):
        second.of(EVERYONE, system_entropy())  # nobody learns whom it would have chosen


def test_counts_that_are_missing_damaged_or_of_another_plan_are_refused(tmp_path):
    path = tmp_path / "participations.npy"
    with pytest.raises(CorruptState, match="cannot be read"):
        opened(path, 1)
    opened(path, 0).of(EVERYONE, system_entropy())
    with pytest.raises(CorruptState, match="another plan"):
        opened(path, 1, plan="b")
    whole = path.read_bytes()
    damaged = [whole[:length] for length in (0, 31, 32, 100, len(whole) - 1)]
    damaged += [whole.replace(b"\x01", b"\x00", 3), whole + b"\x00"]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(CorruptState, match="damaged"):
            opened(path, 1)
    path.write_bytes(whole)
    with pytest.raises(CorruptState, match="does not count 60"):
        opened(path, 1, population=60)


def test_a_new_run_starts_from_nothing(tmp_path):
    path = tmp_path / "participations.npy"
    opened(path, 0).of(EVERYONE, system_entropy())
    opened(path, 0)
    assert not np.load(path).any()


def test_without_a_cap_nothing_is_kept(tmp_path):
    path = tmp_path / "participations.npy"
    SimulatedChoices(Cohort.everyone(50, contribute=0.5), path).of(EVERYONE, system_entropy())
    assert not path.exists()
