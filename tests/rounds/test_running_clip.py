"""The clip norm of a run: a search, then gentle steps; a replayed history leads to the same place."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skelmix as sk
from skelmix.errors import InvalidInput
from skelmix.rounds.running_clip import RunningClip

CLIP = sk.AdaptiveClip(start=4.0, quantile=0.6, rate=0.3, weight=0.2)


@lru_cache
def plan(clip=CLIP):
    return sk.plan(
        sk.PrivacyTarget(5.0, 1e-5), dimension=3, bits=12, bound="rdp", rounds=9, clip=clip, scale=50.0,
        cohort=sk.Cohort.everyone(10),
    )  # fmt: skip


def decoded(fraction):
    """A decoded sum that shows this fraction within."""
    return np.array([0.1, 0.2, 0.3, (fraction - 0.5) * 0.2 * 10])


def gentle(*fractions):
    return float(np.exp(sum(-0.3 * (fraction - 0.6) for fraction in fractions)))


def test_it_halves_until_the_fraction_has_crossed_the_quantile_twice_and_then_steps_gently():
    clip = RunningClip(plan())
    norms = []
    for fraction in (1.0, 0.9, 0.7, 0.5, 0.4, 0.9):
        clip.take(decoded(fraction))
        norms.append(clip.norm)
    ends = [gentle(0.5) / 2, gentle(0.5, 0.4) / 2, gentle(0.5, 0.4, 0.9) / 2]
    assert norms == pytest.approx([2.0, 1.0, 0.5, *ends])


def test_one_round_on_the_other_side_does_not_end_the_search():
    clip = RunningClip(plan())
    for fraction in (1.0, 0.5, 1.0):
        clip.take(decoded(fraction))
    assert clip.norm == pytest.approx(1.0 * gentle(0.5))


def test_it_doubles_from_far_below():
    clip = RunningClip(plan())
    for _ in range(5):
        clip.take(decoded(0.0))
    assert clip.norm == pytest.approx(4.0 * 32)


@pytest.mark.parametrize(("start", "quantile", "sign"), [(0.01, 0.8, 1), (100.0, 0.2, -1)])
def test_the_search_ends_where_so_few_contribute_that_no_clip_norm_shows_the_quantile(start, quantile, sign):
    adaptive = sk.AdaptiveClip(start=start, quantile=quantile, rate=0.3, weight=0.2)
    clip = RunningClip(plan(adaptive))
    for _ in range(30):  # half of those expected are there, and their vectors have norm 1
        clip.take(decoded(0.5 + 0.25 * (1 if clip.norm >= 1 else -1)))
    assert 1 < clip.norm**sign < 64


def test_sums_of_the_search_down_are_dropped_and_no_others():
    clip = RunningClip(plan())
    for fraction in (0.95, 0.65, 0.1):
        assert not clip.take(decoded(fraction))[0].any()
    norm = clip.norm
    assert clip.take(decoded(0.1))[0] == pytest.approx(np.array([0.1, 0.2, 0.3]) * norm)
    assert clip.take(decoded(0.95))[0].all(), "the search is over"
    upwards = RunningClip(plan())
    assert upwards.take(decoded(0.0))[0].all()


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12))
def test_a_replayed_history_leads_to_the_same_place(fractions):
    first, again = RunningClip(plan()), RunningClip(plan())
    history = []
    for fraction in fractions:
        norm = first.norm
        within = None if fraction is None else first.take(decoded(fraction))[1]
        history.append((norm, within))
    for norm, within in history:
        again.replay(norm, within)
    for clip in (first, again):
        clip.take(decoded(0.2))
    assert again.norm == pytest.approx(first.norm)


def test_a_fixed_clip_stays_where_it_is():
    clip = RunningClip(plan("fixed"))
    total = np.array([1.0, 2.0, 3.0])
    assert clip.take(total) == (pytest.approx(total), None)
    clip.replay(None, None)
    assert (clip.norm, clip.stated, clip.joint()) == (1.0, None, None)


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan"), 2.0**60])
def test_a_clip_norm_without_sense_is_refused(norm):
    for call in (RunningClip(plan()).continue_from, lambda n: RunningClip(plan()).replay(n, 0.5)):
        with pytest.raises(InvalidInput, match="clip_norm"):
            call(norm)
