"""Exact sums that come in fixed point enter a silo's sum as they are, where no record is rotated."""

import numpy as np
import pytest

from skelmix.errors import InvalidInput
from skelmix.mechanisms import SkellamMixture

SMM = SkellamMixture(dimension=6, bits=16, scale=100.0, clip_norm=1.0, total_noise=50.0)


def test_the_longest_record_in_units_has_the_clip_norm():
    silo = SMM.silo_sum(round=2)
    for place in range(6):
        silo.add_units(np.eye(6, dtype=np.int64)[place] * silo.unit_radius, 1)
    np.testing.assert_allclose(silo.clipped_sum(), np.ones(6), rtol=1e-7)
    assert silo.records == 6


def test_the_radius_is_the_largest_that_the_clip_lets_pass():
    silo = SMM.silo_sum(round=0)
    longest = SMM.radius / np.sqrt(SMM.padded_dimension) * 2.0**SMM.fixed_point.fraction_bits
    assert longest * (1 - 1e-6) < silo.unit_radius <= longest


def test_units_and_vectors_add_up():
    apart, together = SMM.silo_sum(round=1), SMM.silo_sum(round=1)
    vectors = np.random.default_rng(0).standard_normal((30, 6))
    first = SMM.silo_sum(round=1)
    first.add(vectors[:10])
    exact = sum((part for part in [first._sums.get()]), np.zeros(6, np.int64))
    apart.add_units(exact, 10)
    apart.add(vectors[10:])
    together.add(vectors)
    assert (apart._total() == together._total()).all()
    assert apart.records == together.records == 30


@pytest.mark.parametrize(
    "total", [np.zeros(5, np.int64), np.zeros(6), np.zeros(6, np.int32), [0] * 6, np.zeros((1, 6), np.int64)]
)
def test_other_shapes_and_dtypes_are_refused(total):
    with pytest.raises(InvalidInput, match="int64 array of shape"):
        SMM.silo_sum(round=0).add_units(total, 1)


def test_sums_are_refused_where_records_are_rotated_or_the_sum_was_sent():
    subset = SkellamMixture(dimension=6, bits=16, scale=100.0, clip_norm=1.0, total_noise=50.0, keep=4)
    with pytest.raises(InvalidInput, match="all coordinates kept"):
        subset.silo_sum(round=0).add_units(np.zeros(4, np.int64), 1)
    sent = SMM.silo_sum(round=0)
    SMM.encode_silo(sent)
    with pytest.raises(InvalidInput, match="encoded already"):
        sent.add_units(np.zeros(6, np.int64), 1)
