"""One contract for every mechanism: its noise, its sensitivity and its bounds."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from helpers.every_mechanism import ALL, COMMON, D, N, vectors
from helpers.noiseless import noiseless
from skelmix.errors import InvalidInput
from skelmix.mechanisms import (
    Binomial,
    FlatClip,
    GaussianMixture,
    L2Clip,
    Skellam,
    SkellamMixture,
)


def test_noise_shares_are_exact_and_a_round_may_choose_them(distributed):
    law, third = distributed.participant_law(), distributed.participant_law(3)
    assert law.variance > 0
    if isinstance(distributed, SkellamMixture | Skellam):
        assert Fraction(law.rate) == Fraction(9, N)
        assert Fraction(third.rate) == 3
        assert distributed.total_law(N).rate == 9
    elif isinstance(distributed, Binomial):
        assert (law.trials, third.trials) == (18, 34)
    elif getattr(distributed, "round_sigma_up", False):
        assert (law.parameter, third.parameter) == (4, 9)  # σ = √1.5 up to 2; then √(4·6/3) up to 3
    else:
        assert (law.parameter, third.parameter) == (Fraction(9, N), 3)
    with pytest.raises(InvalidInput):
        distributed.encode(vectors(), round=0, shares=0)


@pytest.mark.parametrize("sampled", [1, 2, 3, 4, 5, N, N + 1, 4 * N])
def test_no_cohort_has_less_noise_than_the_accounted_one(distributed, sampled):
    least = N * distributed.participant_law().variance
    if isinstance(distributed, Binomial):
        least = distributed.total_noise / 4  # what its bound counts; shares are rounded up
    assert sampled * distributed.participant_law(sampled).variance >= least * (1 - 1e-6)


@pytest.mark.parametrize("participants", [1, 15, 16, 53])
def test_the_draws_of_a_round_add_up_to_everybodys_noise(distributed, participants):
    law = distributed.participant_law()
    drawn = list(distributed._draws(law, participants))
    variance = sum(draws * one.variance for one, draws in drawn)
    assert variance == pytest.approx(participants * law.variance, rel=1e-12)
    if not isinstance(distributed, SkellamMixture | Skellam | Binomial):
        copies = [draws * getattr(one, "copies", 1) for one, draws in drawn]
        assert sum(copies) == participants
        assert all(one.parameter == law.parameter for one, _ in drawn)


def test_participants_beyond_the_vectors_add_noise_only(distributed):
    zeros = np.zeros((1, D))
    few = distributed.encode_sum(zeros, round=0, participants=1)
    many = distributed.encode_sum(zeros, round=0, participants=400)
    spread = [np.std(distributed.decode(total, round=0)) for total in (few, many)]
    assert spread[1] > 5 * spread[0]  # 20 times the deviation
    with pytest.raises(InvalidInput):
        distributed.encode_sum(np.zeros((3, D)), round=0, participants=2)


def test_the_central_gaussian_sees_every_coordinate_whatever_is_kept():
    central = replace(ALL["gaussian"], keep=8, clip_slack=3.0)
    assert central.coordinates == D
    assert central.radius == ALL["gaussian"].radius
    assert central.encode_sum(vectors(), round=0).shape == (D,)


@pytest.mark.parametrize("kind", [SkellamMixture, GaussianMixture])
@pytest.mark.parametrize(("keep", "slack"), [(1, 0.0), (14, 2.0), (56, 1.0)])
def test_the_bounds_are_about_the_coordinates_that_are_sent(kind, keep, slack):
    dense = kind(**COMMON, total_noise=1e4)
    kept = replace(dense, keep=keep, clip_slack=slack)
    assert kept.coordinates == keep
    assert kept.radius == pytest.approx(np.sqrt(keep / 56) * 64.0 * (1 + slack / np.sqrt(keep)), rel=1e-14)
    assert kept.l2_sensitivity == kept.radius
    assert kept.l1_sensitivity == pytest.approx(np.sqrt(keep) * kept.radius, rel=1e-14)
    as_dense = replace(dense, clip_norm=kept.radius / 64.0)
    assert kept.rdp((2, 3, 4)).values == pytest.approx(as_dense.rdp((2, 3, 4)).values, rel=1e-9)


def test_declared_sensitivities_hold_for_what_one_participant_adds(distributed):
    from skelmix.encoding.wrapping import unwrap

    quiet = noiseless(distributed)
    rng = np.random.default_rng(1)
    x = rng.standard_cauchy(size=(40, D))
    with quiet._prepared(0, x, 0) as (floats, _):
        clipped = floats.astype(np.float64)
    integers = unwrap(quiet.encode(x, round=0), 16).astype(np.float64)
    rows = clipped if hasattr(quiet, "clip") else integers
    assert np.abs(rows).sum(axis=1).max() <= quiet.l1_sensitivity * (1 + 1e-12)
    assert (rows**2).sum(axis=1).max() <= quiet.l2_sensitivity**2 * (1 + 1e-12)
    assert np.abs(rows).max() <= quiet.linf_sensitivity


def test_every_bound_has_its_method(mechanism):
    mechanism = replace(mechanism, total_noise=1e4)
    for bound in mechanism.bounds:
        if bound in ("paper", "rdp"):
            curve = mechanism.rdp((2, 3, 4))
            assert all(value > 0 for value in curve.values)
        elif bound == "composition":
            assert mechanism.approximate_dp(1e-5) > 0
        elif bound != "flat":  # takes seconds; its wiring is tested below, its number with the accounting
            assert mechanism.certificate(bound, 1e-9).mu > 0
    with pytest.raises(InvalidInput):
        mechanism.certificate("nothing", 1e-9)


@pytest.mark.parametrize("kind", [SkellamMixture, GaussianMixture])
def test_the_flat_certificate_is_asked_about_the_clipped_vector_and_the_summed_noise(kind, monkeypatch):
    from skelmix.accounting import gaussian as gaussian_dp

    asked = []
    monkeypatch.setattr(gaussian_dp, "flat_certificate", lambda *args: asked.append(args))
    mechanism = kind(**COMMON, total_noise=12.0, clip=FlatClip(7.5))
    mechanism.certificate("flat", 1e-9)
    assert asked == [(mechanism.total_law(N), 64.0, 7.5, 56, 1e-9)]
    kept = replace(mechanism, keep=14, clip_slack=1.0)
    kept.certificate("flat", 1e-9)
    assert asked[1:] == [(mechanism.total_law(N), kept.radius, 7.5, 14, 1e-9)]
    with pytest.raises(InvalidInput):
        replace(mechanism, clip=L2Clip()).certificate("flat", 1e-9)


@pytest.mark.parametrize("sampled", [N, N + 1, 2 * N, 40 * N])
def test_a_larger_cohort_never_holds_less_than_the_accounted_shares(distributed, sampled):
    """Bounds are about `shares` shares of `total_noise`. Sums of Skellams or binomials may be divided among
    more; of discrete Gaussians more and narrower ones would hide less, so that each keeps its width."""
    accounted, given = distributed.participant_law(), distributed.participant_law(sampled)
    if isinstance(distributed, SkellamMixture | Skellam):
        assert sampled * Fraction(given.rate) == distributed.total_noise
    elif isinstance(distributed, Binomial):
        assert sampled * given.trials >= distributed.total_noise
    else:
        assert given == accounted
