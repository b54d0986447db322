"""One contract for every mechanism: what is sent decodes to the sum."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.every_mechanism import D, N, noise_deviation, vectors
from helpers.noiseless import noiseless
from skelmix.encoding.threads import at_most
from skelmix.encoding.wrapping import wire_dtype
from skelmix.errors import InvalidInput
from skelmix.mechanisms import (
    CentralGaussian,
    EncodeStats,
    GaussianMixture,
    MixtureClip,
    SkellamMixture,
)
from skelmix.noise.entropy import ReproducibleEntropy


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
    quiet = noiseless(distributed)
    total = quiet.encode_sum(vectors(), round=1)
    right = quiet.decode(total, round=1)
    other = noiseless(replace(distributed, rotation_seed=bytes(32)))
    assert np.abs(quiet.decode(total, round=2) - right).max() > 0.1
    assert np.abs(other.decode(total, round=1) - right).max() > 0.1


def test_without_noise_each_coordinate_is_a_neighbouring_integer(distributed):
    from skelmix.encoding.wrapping import unwrap

    if isinstance(getattr(distributed, "clip", None), MixtureClip):
        pytest.skip("the paper's clip changes the vector; see test_mixtures")
    quiet = noiseless(distributed)
    assert quiet.participant_law() is None
    x = vectors(dtype=np.float64, length=0.5)
    assert np.abs(unwrap(quiet.encode(x, round=0), 16) - on_the_grid(quiet, x, 0)).max() < 1
    whole = np.zeros((1, D))
    whole[0, 3] = 0.5
    unrotated = noiseless(plain(distributed))
    assert unrotated.encode(whole, round=0)[0].tolist() == (64 * whole[0]).astype(int).tolist()
    with pytest.raises(InvalidInput):
        quiet.rdp((2, 3)) if "composition" not in quiet.bounds else quiet.approximate_dp(1e-5)


def test_without_noise_encode_and_encode_sum_of_grid_points_agree(distributed):
    quiet = noiseless(plain(distributed))
    x = np.random.default_rng(2).integers(-1, 2, size=(N, D)) / 64.0
    sent = quiet.encode(x, round=0).astype(np.int64).sum(axis=0) % quiet.modulus
    assert sent.tolist() == quiet.encode_sum(x, round=0).tolist()
    assert quiet.decode(sent, round=0).tolist() == x.sum(axis=0).tolist()


def test_streams_lists_arrays_and_blocks_are_the_same_vectors(mechanism):
    quiet = noiseless(mechanism) if hasattr(mechanism, "modulus") else mechanism
    if hasattr(mechanism, "modulus"):
        quiet = noiseless(plain(mechanism))
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
    narrow = noiseless(replace(plain(distributed), bits=4))
    narrow.encode_sum(x, round=0, stats=stats)
    assert stats.wrapped_coordinates == 1
    assert narrow.overflow(np.array([-8, 7, 8, -9])) == 2


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
