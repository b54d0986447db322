"""A silo's message: the exact sum of its clipped records, rounded once, with one share of noise."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from helpers.hypothesis_tests import follows
from helpers.noiseless import noiseless
from skelmix.encoding.threads import at_most
from skelmix.encoding.wrapping import unwrap
from skelmix.errors import InvalidInput
from skelmix.mechanisms import (
    Binomial,
    CentralGaussian,
    EncodeStats,
    FlatClip,
    GaussianMixture,
    L2Clip,
    MixtureClip,
    SiloSum,
    SkellamMixture,
)
from skelmix.noise.entropy import ReproducibleEntropy

D = 90
COMMON = dict(
    dimension=D, bits=16, scale=64.0, clip_norm=1.0, total_noise=40.0, shares=4, rotation_seed=b"s" * 32
)
MECHANISMS = {
    "smm": SkellamMixture(**COMMON),
    "flat smm": SkellamMixture(**COMMON, clip=FlatClip(32.0)),
    "dgm": GaussianMixture(**COMMON),
    "flat dgm": GaussianMixture(**COMMON, clip=FlatClip(32.0)),
    "subset smm": SkellamMixture(**COMMON, keep=40, clip_slack=3.0),
    "flat subset smm": SkellamMixture(**COMMON, keep=40, clip_slack=3.0, clip=FlatClip(24.0)),
    "smm without rotation": SkellamMixture(**COMMON, rotate=False),
}


@pytest.fixture(params=MECHANISMS)
def mechanism(request):
    return MECHANISMS[request.param]


def records(count=200, dtype=np.float32):
    random = np.random.default_rng(0)
    return (random.standard_normal((count, D)) * 0.08 * random.random((count, 1))).astype(dtype)


def summed(mechanism, vectors, round=3):
    silo = mechanism.silo_sum(round=round)
    silo.add(vectors)
    return silo


def clipped_by_participants(mechanism, x, round=3):
    """The sum of the same vectors as participants clip them, in floating point."""
    with mechanism._prepared(0, x.astype(np.float64), round) as (clipped, _):
        return mechanism._decoded(clipped.sum(axis=0), round)


def test_the_message_decodes_to_the_sum_of_the_clipped_records(mechanism):
    x = records()
    silo = summed(mechanism, x)
    expected = clipped_by_participants(mechanism, x)
    np.testing.assert_allclose(silo.clipped_sum(), expected, atol=1e-5)
    if mechanism.keep is None:
        np.testing.assert_allclose(expected, x.sum(axis=0, dtype=np.float64), atol=1e-5)
    message = mechanism.encode_silo(silo)
    assert message.shape == (mechanism.coordinates,)
    assert message.dtype == np.uint16
    error = mechanism.decode(message, round=3) - expected
    assert 0 < np.abs(error).max() < 40 / mechanism.scale


def test_long_records_are_clipped_and_counted(mechanism):
    x = np.zeros((4, D))
    x[0, :], x[1, 5], x[2, 5] = 100.0, -0.5, np.nan
    silo = summed(mechanism, x)
    assert (silo.records, silo.broken, silo.stats.clipped_rows) == (4, 1, 1)
    np.testing.assert_allclose(
        silo.clipped_sum(), clipped_by_participants(mechanism, np.nan_to_num(x)), atol=1e-5
    )
    if mechanism.keep is None:
        assert np.linalg.norm(silo.clipped_sum() + 0.5 * np.eye(D)[5]) == pytest.approx(1.0, abs=1e-5)


def test_every_way_to_add_records_gives_the_same_sum(mechanism):
    x = records()

    def refilled():  # a generator that fills the same array again and again
        block = np.empty((7, D), np.float32)
        for start in range(0, 196, 7):
            block[:] = x[start : start + 7]
            yield block
        yield x[196:]

    expected = summed(mechanism, x)._total()
    ways = [
        list(x),
        refilled(),
        x.astype(np.float64),
        np.asfortranarray(x),
        x[::-1],
        np.concatenate([x, np.full((3, D), np.nan)]),
        [x[:0], x[:50], x[50], x[51:]],
        (block.astype(np.float64) if i % 2 else block for i, block in enumerate(x)),
    ]
    for given in ways:
        for threads in (1, 2):
            with at_most(threads):
                silo = mechanism.silo_sum(round=3)
                silo.add(x if given is ways[1] or given is ways[-1] else given)
                assert np.array_equal(silo._total(), expected)
    assert np.array_equal(summed(mechanism, refilled())._total(), expected)
    assert np.array_equal(summed(mechanism, ways[-1])._total(), expected)


def test_a_record_changes_the_sum_by_itself_whatever_the_others_are(mechanism):
    x = records(60)
    x[4], x[9] = np.inf, 1e30
    whole = summed(mechanism, x)._total()
    for record in (0, 4, 9, 33):
        without = summed(mechanism, np.delete(x, record, axis=0))._total()
        assert np.array_equal(whole - without, summed(mechanism, x[record])._total())


def test_an_empty_silo_sends_noise(mechanism):
    silo = mechanism.silo_sum(round=0)
    silo.add(np.empty((0, D), np.float32))
    silo.add([])
    silo.add(iter([np.empty((0, D))]))
    assert silo.records == 0
    assert mechanism.encode_silo(silo).any()


def test_noise_is_one_share_of_the_law():
    mechanism = replace(MECHANISMS["smm"], dimension=2**17)
    law = lambda shares: lambda k: float(mechanism.participant_law(shares).cdf_ball(k))  # noqa: E731
    cuts = range(-9, 10, 3)
    quarter = unwrap(mechanism.encode_silo(mechanism.silo_sum(round=0)), 16)
    assert follows(quarter, law(4), cuts)
    assert not follows(quarter, law(5), cuts)
    fifth = unwrap(mechanism.encode_silo(mechanism.silo_sum(round=0), shares=5), 16)
    assert follows(fifth, law(5), cuts)


def spread(mechanism):
    """The largest norm of the error of one rounding, decoded."""
    return mechanism.padded_dimension / math.sqrt(mechanism.coordinates) / mechanism.scale


def test_silos_together_are_the_sum_of_their_messages(mechanism):
    bare = noiseless(mechanism)
    x = np.round(records() * 8) / 8
    stats = EncodeStats()
    silos = [summed(bare, part) for part in np.array_split(x, 3)]
    together = bare.decode(bare.encode_silos(silos, stats=stats), round=3)
    assert stats.participants == 200
    # three roundings, each off by less than one on every coordinate
    exact = sum(summed(bare, part).clipped_sum() for part in np.array_split(x, 3))
    error = together - exact
    assert np.linalg.norm(error) <= 3 * spread(mechanism)
    messages = [bare.encode_silo(summed(bare, part)).astype(np.int64) for part in np.array_split(x, 3)]
    apart = bare.decode(sum(messages) % bare.modulus, round=3)
    assert np.linalg.norm(apart - exact) <= 3 * spread(mechanism)
    noisy = [summed(mechanism, part) for part in np.array_split(x, 4)]
    assert mechanism.encode_silos(noisy).dtype == np.uint16


def test_rounding_has_no_bias():
    bare = noiseless(replace(MECHANISMS["smm"], dimension=2**18, rotate=False, scale=1.0, clip_norm=2.0))
    silo = bare.silo_sum(round=0)
    silo.add(np.full((1, 2**18), 0.003))  # norm 1.54, within the clip
    silo.add(np.full((1, 2**18), -0.0035))
    rounded = unwrap(bare.encode_silo(silo), 16)
    law = lambda down: lambda k: 0.0 if k < -1 else down if k < 0 else 1.0  # noqa: E731
    assert follows(rounded, law(0.0005), [-2, -1, 0])
    assert not follows(rounded, law(0.0015), [-2, -1, 0])


def test_a_sum_that_wraps_around_decodes_all_the_same(mechanism):
    """As if the silo had added so many records that 64 bits do not hold the sum."""
    x = records()
    plain, wrapped = summed(mechanism, x), summed(mechanism, x)
    with wrapped._partial_sum() as total:
        if wrapped._grid.rotate and not wrapped._grid.rotates_records:
            total += np.int64(2**62)  # four times: rotated, a multiple of 2^64
            total += np.int64(2**62)
            total += np.int64(2**62)
            total += np.int64(2**62)
        else:
            total += np.int64(-(2**63))
            total += np.int64(-(2**63))
    a = mechanism.encode_silo(plain, entropy=ReproducibleEntropy(1))
    b = mechanism.encode_silo(wrapped, entropy=ReproducibleEntropy(1))
    assert np.array_equal(a, b)


def test_reproducible_entropy_repeats(mechanism):
    x = records()
    first, second = (
        mechanism.encode_silo(summed(mechanism, x), entropy=ReproducibleEntropy(7)) for _ in "ab"
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, mechanism.encode_silo(summed(mechanism, x)))


def test_a_sum_is_encoded_once(mechanism):
    silo = summed(mechanism, records())
    with pytest.raises(InvalidInput, match="shares"):
        mechanism.encode_silo(silo, shares=0)
    mechanism.encode_silo(silo)
    with pytest.raises(InvalidInput, match="encoded already"):
        mechanism.encode_silo(silo)
    with pytest.raises(InvalidInput, match="encoded already"):
        silo.add(records())


def test_another_mechanisms_sum_is_refused(mechanism):
    other = replace(mechanism, clip_norm=2.0)
    with pytest.raises(InvalidInput, match="silo_sum"):
        mechanism.encode_silo(summed(other, records()))
    with pytest.raises(InvalidInput, match="silo_sum"):
        mechanism.encode_silo(records()[0])
    with pytest.raises(InvalidInput, match="empty"):
        mechanism.encode_silos([])


def test_wrong_shapes_are_refused(mechanism):
    for wrong in (np.zeros((3, D + 1)), np.zeros(D - 1), np.array(["a"] * D), [np.zeros((2, 2, D))], 5):
        with pytest.raises(InvalidInput):
            mechanism.silo_sum(round=0).add(wrong)
    with pytest.raises(InvalidInput):
        mechanism.silo_sum(round=-1)


@pytest.mark.parametrize(
    "other",
    [
        SkellamMixture(**COMMON, clip=MixtureClip(2)),
        GaussianMixture(**COMMON, clip=MixtureClip(2)),
        Binomial(**COMMON),
        CentralGaussian(D, 8, scale=1.0, clip_norm=1.0, total_noise=4.0),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_bounds_without_a_base_point_have_no_silos(other):
    assert not other.sums_records
    with pytest.raises(InvalidInput, match="smm or dgm"):
        other.silo_sum(round=0)
    foreign = MECHANISMS["smm"].silo_sum(round=0)
    with pytest.raises(InvalidInput):
        other.encode_silo(foreign)
    with pytest.raises(InvalidInput):
        other.encode_silos([foreign])


def test_mixtures_with_certified_bounds_sum_records(mechanism):
    assert mechanism.sums_records
    assert isinstance(mechanism.silo_sum(round=0), SiloSum)
    assert isinstance(mechanism.clip, L2Clip | FlatClip)


def test_memory_does_not_grow_with_the_batch():
    mechanism = SkellamMixture(**COMMON | {"dimension": 20_000}, clip=FlatClip(1.0))
    block = np.full((8, 20_000), 1e-3, np.float32)

    def peak(blocks):
        tracemalloc.start()
        summed(mechanism, (block for _ in range(blocks)))
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    assert peak(300) < 12 * block.nbytes  # a few blocks and sums for each thread
