"""One contract for every mechanism: what goes in, what comes out, what is refused."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest

from skelmix.encoding.threads import at_most
from skelmix.encoding.wrapping import wire_dtype
from skelmix.errors import InvalidInput
from skelmix.mechanisms import (
    Binomial,
    CentralGaussian,
    DiscreteGaussian,
    EncodeStats,
    FlatClip,
    GaussianMixture,
    L2Clip,
    MixtureClip,
    Skellam,
    SkellamMixture,
    mechanism_from_dict,
)
from skelmix.noise.entropy import ReproducibleEntropy

D, N = 50, 6
COMMON = {
    "dimension": D,
    "bits": 16,
    "scale": 64.0,
    "clip_norm": 1.0,
    "shares": N,
    "rotation_seed": bytes(range(32)),
}
DISTRIBUTED = {
    "smm": SkellamMixture(**COMMON, total_noise=9.0),
    "smm-flat": SkellamMixture(**COMMON, total_noise=9.0, clip=FlatClip(40.0)),
    "smm-paper": SkellamMixture(**COMMON, total_noise=9.0, clip=MixtureClip(linf=60)),
    "smm-kept": SkellamMixture(**COMMON, total_noise=9.0, keep=24, clip_slack=0.5),
    "smm-flat-kept": SkellamMixture(**COMMON, total_noise=9.0, keep=40, clip=FlatClip(40.0)),
    "smm-plain": SkellamMixture(**COMMON, total_noise=9.0, rotate=False),
    "dgm": GaussianMixture(**COMMON, total_noise=9.0),
    "dgm-kept": GaussianMixture(**COMMON, total_noise=9.0, keep=56, clip_slack=1.0),
    "dgm-paper": GaussianMixture(**COMMON, total_noise=9.0, clip=MixtureClip(linf=60)),
    "skellam": Skellam(**COMMON, total_noise=9.0),
    "ddg": DiscreteGaussian(**COMMON, total_noise=9.0),
    "ddg-tf": DiscreteGaussian(**COMMON, total_noise=9.0, round_sigma_up=True),
    "cpsgd": Binomial(**COMMON, total_noise=100.0),
}
ALL = {**DISTRIBUTED, "gaussian": CentralGaussian(**{**COMMON, "scale": 1.0}, total_noise=0.01)}


def vectors(rows=N, dtype=np.float32, length=0.9):
    x = np.random.default_rng(5).normal(size=(rows, D))
    return (length * x / np.linalg.norm(x, axis=1, keepdims=True)).astype(dtype)


@pytest.fixture(params=ALL.values(), ids=ALL.keys())
def mechanism(request):
    return request.param


@pytest.fixture(params=DISTRIBUTED.values(), ids=DISTRIBUTED.keys())
def distributed(request):
    return request.param


def noise_deviation(mechanism):
    """Of a decoded coordinate: the noise of the kept ones is spread over all."""
    spread = mechanism.padded_dimension / mechanism.coordinates
    return np.sqrt(spread * (mechanism.noise_variance(N) + N / 4)) / mechanism.scale


def plain(mechanism):
    """The same without rotation, and so with every coordinate."""
    return replace(mechanism, rotate=False, keep=None, clip_slack=0.0)


def on_the_grid(mechanism, x, round):
    """The rotated, scaled coordinates that are sent, before the clip."""
    from skelmix.encoding.rotation import rotate
    from skelmix.encoding.subset import choose

    if not mechanism.rotate:
        return x * mechanism.scale
    y = rotate(x, mechanism.rotation_seed, round, scale=mechanism.scale)
    if mechanism.keep is None:
        return y
    return np.ascontiguousarray(y[:, choose(mechanism.rotation_seed, round, y.shape[1], mechanism.keep)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shapes_dtypes_and_inputs_left_alone(mechanism, dtype):
    x = vectors(dtype=dtype)
    kept = x.copy()
    width = mechanism.coordinates
    many, one = mechanism.encode(x, round=0), mechanism.encode(x[0], round=0)
    total = mechanism.encode_sum(x, round=0)
    assert many.shape == (N, width)
    assert one.shape == total.shape == (width,)
    assert many.dtype == one.dtype == total.dtype
    if hasattr(mechanism, "modulus"):
        assert many.dtype == wire_dtype(mechanism.bits)
    decoded = mechanism.decode(total, round=0)
    assert decoded.shape == (D,)
    assert decoded.dtype == np.float64
    assert x.tobytes() == kept.tobytes()


@pytest.mark.parametrize("bits", [3, 8, 11, 32])
def test_what_is_sent_fits_the_bits(distributed, bits):
    narrow = replace(distributed, bits=bits)
    sent = narrow.encode(vectors(), round=0)
    assert sent.dtype == wire_dtype(bits)
    assert int(sent.max()) < 1 << bits
    assert narrow.modulus == 1 << bits


def test_sums_of_what_is_sent_decode_to_the_sum(mechanism):
    x = vectors(dtype=np.float64)
    truth = x.sum(axis=0)
    if isinstance(mechanism, SkellamMixture | GaussianMixture):
        truth = clipped_sum(mechanism, x)
    bound = 7 * noise_deviation(mechanism)  # 50 coordinates, 14 mechanisms, two ways: below 1e-8 in all
    if isinstance(mechanism, CentralGaussian):
        assert np.allclose(mechanism.encode(x, round=4).sum(axis=0), truth)
    else:
        sent = mechanism.encode(x, round=4).astype(np.int64).sum(axis=0)
        assert np.abs(mechanism.decode(sent % mechanism.modulus, round=4) - truth).max() < bound
    total = mechanism.encode_sum(x, round=4)
    assert np.abs(mechanism.decode(total, round=4) - truth).max() < bound


def clipped_sum(mechanism, x):
    """The sum as the clip and the choice of coordinates leave it, without rounding and noise."""
    from skelmix.encoding.rotation import unrotate
    from skelmix.encoding.subset import choose

    y = on_the_grid(mechanism, x, 4)
    mechanism.clip.apply(y, mechanism.radius)
    total = y.sum(axis=0)
    if not mechanism.rotate:
        return total / mechanism.scale
    if mechanism.keep is not None:
        length = mechanism.padded_dimension
        kept, total = total, np.zeros(length)
        total[choose(mechanism.rotation_seed, 4, length, mechanism.keep)] = kept * length / mechanism.keep
    return unrotate(total, mechanism.rotation_seed, 4, dimension=D, scale=1 / mechanism.scale)


def test_another_round_or_seed_does_not_decode(distributed):
    if not distributed.rotate:
        pytest.skip("without rotation there are no signs")
    quiet = distributed.without_noise()
    total = quiet.encode_sum(vectors(), round=1)
    right = quiet.decode(total, round=1)
    other = replace(distributed, rotation_seed=bytes(32)).without_noise()
    assert np.abs(quiet.decode(total, round=2) - right).max() > 0.1
    assert np.abs(other.decode(total, round=1) - right).max() > 0.1


def test_without_noise_each_coordinate_is_a_neighbouring_integer(distributed):
    from skelmix.encoding.wrapping import unwrap

    if isinstance(getattr(distributed, "clip", None), MixtureClip):
        pytest.skip("the paper's clip changes the vector; see test_mixtures")
    quiet = distributed.without_noise()
    assert quiet.participant_law() is None
    x = vectors(dtype=np.float64, length=0.5)
    assert np.abs(unwrap(quiet.encode(x, round=0), 16) - on_the_grid(quiet, x, 0)).max() < 1
    whole = np.zeros((1, D))
    whole[0, 3] = 0.5
    unrotated = plain(distributed).without_noise()
    assert unrotated.encode(whole, round=0)[0].tolist() == (64 * whole[0]).astype(int).tolist()
    with pytest.raises(InvalidInput):
        quiet.rdp((2, 3)) if "composition" not in quiet.bounds else quiet.approximate_dp(1e-5)


def test_without_noise_encode_and_encode_sum_of_grid_points_agree(distributed):
    quiet = plain(distributed).without_noise()
    x = np.random.default_rng(2).integers(-1, 2, size=(N, D)) / 64.0
    sent = quiet.encode(x, round=0).astype(np.int64).sum(axis=0) % quiet.modulus
    assert sent.tolist() == quiet.encode_sum(x, round=0).tolist()
    assert quiet.decode(sent, round=0).tolist() == x.sum(axis=0).tolist()


def test_streams_lists_arrays_and_blocks_are_the_same_vectors(mechanism):
    quiet = mechanism.without_noise() if hasattr(mechanism, "modulus") else mechanism
    if hasattr(mechanism, "modulus"):
        quiet = plain(mechanism).without_noise()
    x = np.random.default_rng(2).integers(-1, 2, size=(N, D)) / 64.0
    reused, pairs = np.empty(D), np.empty((2, D))

    def stream():  # a generator that fills the same array again and again
        for row in x:
            reused[:] = row
            yield reused

    def blocks():
        for start in range(0, N, 2):
            pairs[:] = x[start : start + 2]
            yield pairs

    ways = [x, list(x), iter([x[:2], x[2], x[3:]]), stream(), blocks()]
    sums = [quiet.encode_sum(way, round=0, entropy=ReproducibleEntropy(1)) for way in ways]
    assert all(np.allclose(total, sums[0]) for total in sums)


def test_long_vectors_are_clipped_and_counted(mechanism):
    x = vectors(dtype=np.float64, length=5.0)
    stats = EncodeStats()
    decoded = mechanism.decode(mechanism.encode_sum(x, round=0, stats=stats), round=0)
    assert stats.participants == stats.clipped_rows == N
    spread = mechanism.padded_dimension / mechanism.coordinates
    seen = x * mechanism.scale if isinstance(mechanism, CentralGaussian) else on_the_grid(mechanism, x, 0)
    assert stats.squared_norms == pytest.approx(spread * np.sum(seen**2), rel=1e-6)
    if mechanism.keep is None:
        assert stats.squared_norms == pytest.approx(N * (5 * mechanism.scale) ** 2, rel=1e-6)
    longest = spread * mechanism.radius / mechanism.scale
    assert np.linalg.norm(decoded) < N * longest + 7 * np.sqrt(D) * noise_deviation(mechanism)
    assert np.linalg.norm(decoded) < 0.5 * np.linalg.norm(x.sum(axis=0))


def test_wrapping_is_counted(distributed):
    x = np.zeros((N, D))
    x[:, 0] = 1.0
    stats = EncodeStats()
    narrow = replace(plain(distributed), bits=4).without_noise()
    narrow.encode_sum(x, round=0, stats=stats)
    assert stats.wrapped_coordinates == 1
    assert narrow.overflow(np.array([-8, 7, 8, -9])) == 2


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


def test_reproducible_entropy_repeats_whatever_the_threads(mechanism):
    wide = replace(mechanism, dimension=3000)
    x = np.random.default_rng(0).normal(size=(600, 3000)).astype(np.float32)  # three blocks of 2^20 and more
    with at_most(1):
        first = wide.encode(x, round=0, entropy=ReproducibleEntropy(3))
        first_sum = wide.encode_sum(x, round=0, entropy=ReproducibleEntropy(3))
    with at_most(2):
        again = wide.encode(x, round=0, entropy=ReproducibleEntropy(3))
        again_sum = wide.encode_sum(x, round=0, entropy=ReproducibleEntropy(3))
    assert first.tobytes() == again.tobytes()
    assert first_sum.tobytes() == again_sum.tobytes()
    if hasattr(mechanism, "modulus"):
        assert wide.encode(x, round=0).tobytes() != wide.encode(x, round=0).tobytes()


def test_lengths_whose_squares_overflow_when_added_are_clipped(mechanism):
    x = np.zeros((2, D))
    x[:, 0] = 1.2e154 / mechanism.scale
    stats = EncodeStats()
    assert np.isfinite(mechanism.decode(mechanism.encode_sum(x, round=0, stats=stats), round=0)).all()
    assert stats.clipped_rows == 2


def test_bad_vectors_are_refused(mechanism):
    x = vectors()
    for value in (np.nan, np.inf, -np.inf):
        bad = x.copy()
        bad[2, 7] = value
        for call in (mechanism.encode, mechanism.encode_sum):
            with pytest.raises(InvalidInput):
                call(bad, round=0)
        with pytest.raises(InvalidInput, match="in row 2,"):
            mechanism.encode_sum(iter([bad[:1], bad[1:]]), round=0)
    wrong = [x[:, :-1], x[0, :-1], np.zeros((0, D)), x[None], x.astype(complex), x.astype(str), np.float64(3)]
    for bad in wrong:
        with pytest.raises(InvalidInput):
            mechanism.encode(bad, round=0)
        with pytest.raises(InvalidInput):
            mechanism.encode_sum(bad, round=0)
    for empty in ([], iter([])):
        with pytest.raises(InvalidInput):
            mechanism.encode_sum(empty, round=0)
    with pytest.raises(InvalidInput):
        mechanism.encode_sum(5, round=0)
    if mechanism.padded_dimension != D or not hasattr(mechanism, "modulus"):
        with pytest.raises(InvalidInput):
            mechanism.decode(np.zeros(D + 1, np.int64), round=0)


def test_huge_but_finite_vectors_are_clipped_or_refused(mechanism):
    x = np.zeros((1, D))
    x[0, :2] = 1e300
    try:
        sent = mechanism.decode(mechanism.encode_sum(x, round=0), round=0)
    except InvalidInput:
        return
    assert np.linalg.norm(sent) < 1.5 + 7 * np.sqrt(D) * noise_deviation(mechanism)


def test_torch_tensors_are_accepted(mechanism):
    torch = pytest.importorskip("torch")
    x = vectors()
    tensor = torch.tensor(x, requires_grad=True)
    for call in (mechanism.encode, mechanism.encode_sum):
        want = call(x, round=0, entropy=ReproducibleEntropy(8))
        assert call(tensor, round=0, entropy=ReproducibleEntropy(8)).tobytes() == want.tobytes()


def test_torch_and_flwr_are_not_imported():
    code = (
        "import sys, numpy as np, skelmix.mechanisms as m;"
        "assert 'numba' not in sys.modules;"
        "k = m.SkellamMixture(dimension=3, bits=8, scale=1.0, clip_norm=1.0, total_noise=1.0);"
        "k.encode(np.ones(3), round=0);"
        "assert not {'torch', 'flwr'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_plain_data_survives_json(mechanism):
    data = json.loads(json.dumps(mechanism.to_dict()))
    assert mechanism_from_dict(data) == mechanism
    for broken in (
        {**data, "name": "nothing"},
        {**data, "extra": 1},
        {key: value for key, value in data.items() if key != "scale"},
        {**data, "rotation_seed": "zz" * 32},
        {**data, "rotation_seed": "00"},
        {**data, "total_noise": 0.0},
        {**data, "bits": 0},
        {**data, "bits": "8"},
        [],
    ):
        with pytest.raises(InvalidInput):
            mechanism_from_dict(broken)
    if "clip" in data:
        for clip in ({"kind": "odd"}, {"kind": "flat"}, {"kind": "l2", "b": 1}, None, "l2"):
            with pytest.raises(InvalidInput):
                mechanism_from_dict({**data, "clip": clip})


@pytest.mark.parametrize(
    "change",
    [
        {"dimension": 0},
        {"bits": 33},
        {"scale": -1.0},
        {"clip_norm": 0.0},
        {"total_noise": 0.0},
        {"total_noise": float("nan")},
        {"shares": 0},
        {"rotation_seed": b"short"},
        {"rotate": 1},
        {"clip_norm": 2.0**40},
    ],
)
def test_bad_fields_are_refused(mechanism, change):
    with pytest.raises(InvalidInput):
        replace(mechanism, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"keep": 0},
        {"keep": 57},
        {"keep": "8"},
        {"keep": 8.0},
        {"keep": True},
        {"keep": 8, "clip_slack": -0.1},
        {"keep": 8, "clip_slack": float("inf")},
        {"keep": 8, "clip_slack": None},
        {"keep": None, "clip_slack": 1.0},
        {"keep": 8, "rotate": False},
        {"keep": 8, "clip": MixtureClip(linf=60)},
    ],
)
def test_a_subset_that_means_nothing_is_refused(distributed, change):
    if "clip" in change and not hasattr(distributed, "clip"):
        pytest.skip("it has one clip")
    with pytest.raises(InvalidInput):
        replace(distributed, **change)


def test_baselines_send_every_coordinate_and_say_so(distributed):
    if distributed.sends_subsets:
        assert isinstance(distributed, SkellamMixture | GaussianMixture)
        return
    with pytest.raises(InvalidInput, match="use smm or dgm"):
        replace(distributed, keep=8)


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


def test_mechanisms_are_frozen_values(mechanism):
    with pytest.raises(FrozenInstanceError):
        mechanism.bits = 9
    assert replace(mechanism) == mechanism
    assert hash(replace(mechanism)) == hash(mechanism)


def test_declared_sensitivities_hold_for_what_one_participant_adds(distributed):
    from skelmix.encoding.wrapping import unwrap

    quiet = distributed.without_noise()
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


def test_l2_clip_is_the_default():
    assert isinstance(SkellamMixture(**COMMON, total_noise=1.0).clip, L2Clip)
    with pytest.raises(InvalidInput):
        SkellamMixture(**COMMON, total_noise=1.0, clip="l2")


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
