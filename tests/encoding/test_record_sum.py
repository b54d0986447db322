"""What a record adds to a silo's sum: within the clip exactly, and a function of that record alone."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numba import njit

from skelmix.encoding.fixed_point import FixedPoint
from skelmix.encoding.record_sum import _add_rows, _transform, add_records, clip_units
from skelmix.encoding.rotation import rotate_integers, rotation_signs

SEED = bytes(range(32))
LENGTH, DIMENSION = 24, 21


def grid(**changes):
    given = dict(
        dimension=DIMENSION, length=LENGTH, kept=LENGTH, scale=8.0, l2=8.0, linf=np.inf, bits=8, rotate=True
    )
    return FixedPoint(**given | changes)


GRIDS = {
    "one rotation per silo": (grid(), None),
    "flat": (grid(linf=3.0), None),
    "flat, wide": (grid(scale=2.0**25, l2=2.0**25, linf=2.0**24), None),
    "subset": (grid(kept=9, l2=8.0 * 0.7), np.arange(1, 24, 2, dtype=np.int32)[:9]),
    "flat subset": (grid(kept=9, l2=8.0 * 0.7, linf=2.5), np.arange(1, 24, 2, dtype=np.int32)[:9]),
    "no rotation": (grid(dimension=LENGTH, linf=3.0, rotate=False), None),
}


@pytest.fixture(params=GRIDS)
def case(request):
    records_grid, kept = GRIDS[request.param]
    signs = rotation_signs(SEED, 5, LENGTH) if records_grid.rotates_records else np.empty(0, np.int8)
    return records_grid, kept, signs


def records(count, dimension, seed=0):
    """Of every length: tiny, just at the clip, far above; some spiky; some broken."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, dimension))
    x[::3] *= random.random((len(x[::3]), dimension)) < 0.15
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    x *= np.exp(random.choice([-30.0, -3.0, 0.0, 1e-9, 3.0, 40.0, 300.0], (count, 1)))
    x[::2] *= 1 + 0.3 * random.standard_normal((len(x[::2]), 1))
    x[7::97, 3], x[11::97, 0], x[13::97] = np.nan, np.inf, 1e200
    return x


def exact_bounds(records_grid):
    """(L2 squared, L-infinity) that a clipped record must not exceed on the grid it is summed on."""
    unit = Fraction(2) ** records_grid.fraction_bits
    squares = (Fraction(records_grid.l2) * unit) ** 2
    if records_grid.rotate and not records_grid.rotates_records:
        squares /= records_grid.length  # the rotation of the sum multiplies squares by the length
    return squares, Fraction(min(records_grid.linf, records_grid.l2)) * unit


@njit
def differences(rows, base, signs, places, steps, line, part, lanes, out):
    """out[i] = (a silo's sum with record i) - (the sum without it), modulo 2^64."""
    for i in range(rows.shape[0]):
        total = base[i].copy()
        _add_rows(rows[i : i + 1], signs, places, steps, line, part, lanes, total)
        out[i] = total - base[i]


def pair_differences(rows, case, seed=1):
    records_grid, kept, signs = case
    places = np.empty(0, np.int32) if kept is None else kept
    random = np.random.default_rng(seed)
    base = random.integers(-(2**63), 2**63, (len(rows), records_grid.width), dtype=np.int64)
    out = np.empty((len(rows), records_grid.width), np.int64)
    line = np.empty(
        records_grid.length if records_grid.rotates_records else records_grid.dimension, records_grid.dtype
    )
    part = np.empty(places.size, records_grid.dtype)
    differences(rows, base, signs, places, records_grid.steps, line, part, np.empty(256), out)
    return out


def exact_square_sums(rows):
    """Σ x² of each row as Python integers, |x| < 2^62: in three limbs that do not overflow."""
    high, low = rows >> 31, rows & (2**31 - 1)
    middle = 2 * high * low
    parts = ((high * high, 62), (middle >> 20, 51), (middle & (2**20 - 1), 31), (low * low >> 20, 20))
    total = (low * low & (2**20 - 1)).sum(axis=1).astype(object)
    for part, shift in parts:
        split = (part >> 20).sum(axis=1).astype(object) * 2**20 + (part & (2**20 - 1)).sum(axis=1)
        total = total + split * 2**shift
    return total


def test_the_exact_square_sum_of_these_tests_is_exact():
    rows = np.random.default_rng(0).integers(-(2**61), 2**61, (50, 24))
    assert exact_square_sums(rows).tolist() == [sum(int(v) ** 2 for v in row) for row in rows]


@pytest.mark.parametrize("seed", range(2))
def test_a_million_neighbouring_pairs_never_differ_by_more_than_the_clip(case, seed):
    """Twelve runs: over a million pairs in all."""
    records_grid = case[0]
    rows = records(85_000, records_grid.dimension, seed)
    found = pair_differences(rows, case, seed)
    squares, largest = exact_bounds(records_grid)
    sums = exact_square_sums(found)
    assert max(sums) <= squares
    assert int(np.abs(found).max()) <= largest
    assert max(sums) > 0.999 * squares  # the clip is reached, not missed by far
    broken = ~np.isfinite(rows).all(axis=1) | (np.abs(rows) > 1e160).any(axis=1)
    assert broken.any()
    assert not found[broken].any()


def test_sums_of_floats_would_exceed_the_clip(case):
    """A control: the same check rejects neighbouring sums in float32, beside other records."""
    records_grid = case[0]
    random = np.random.default_rng(0)
    record = random.standard_normal(records_grid.width)
    record *= records_grid.l2 / np.linalg.norm(record) * (1 - 1e-9)
    base = (1e4 * random.standard_normal((500, records_grid.width))).astype(np.float32)
    moved = (base + record.astype(np.float32)).astype(np.float64) - base
    assert (np.sum(moved**2, axis=1) > records_grid.l2**2).any()


def test_neighbouring_silos_differ_by_exactly_the_clipped_record(case):
    records_grid, kept, signs = case
    rows = records(60, records_grid.dimension, 4)
    whole = np.zeros(records_grid.width, np.int64)
    add_records(rows, signs, kept, records_grid, whole)
    for record in range(0, 60, 7):
        without, alone = np.zeros(records_grid.width, np.int64), np.zeros(records_grid.width, np.int64)
        add_records(np.delete(rows, record, axis=0), signs, kept, records_grid, without)
        add_records(rows[record : record + 1], signs, kept, records_grid, alone)
        unit = 2**records_grid.fraction_bits
        moved = [Fraction(int(a) - int(b), unit) for a, b in zip(whole, without, strict=True)]
        assert moved == [Fraction(int(a), unit) for a in alone]


def hadamard(length):
    """The matrix of the transform, column by column, from its definition on unit vectors in int64."""
    signs = rotation_signs(SEED, 5, length).astype(np.int64)
    return (rotate_integers(np.eye(length, dtype=np.int64), SEED, 5) * signs[:, None]).T


def test_a_short_record_is_its_rounded_rotation(case):
    """Against Fractions: nothing but one rounding per coordinate before the rotation."""
    records_grid, kept, signs = case
    row = np.random.default_rng(2).standard_normal(records_grid.dimension)
    row *= 0.2 / np.linalg.norm(row)
    total = np.zeros(records_grid.width, np.int64)
    add_records(row[None], signs, kept, records_grid, total)
    units = [round(Fraction(v) * Fraction(records_grid.steps.factor)) for v in row.tolist()]
    if records_grid.rotates_records:
        flipped = [int(s) * u for s, u in zip(signs, units, strict=False)]
        matrix = hadamard(LENGTH)
        assert (matrix @ matrix.T == LENGTH * np.eye(LENGTH)).all()
        units = [sum(int(h) * u for h, u in zip(line, flipped, strict=False)) for line in matrix]
    units = units if kept is None else [units[place] for place in kept]
    assert max(abs(a - u) for a, u in zip(total.tolist(), units, strict=True)) <= (
        LENGTH if records_grid.dtype == np.int64 else 0
    )


def test_rotating_the_sum_is_rotating_each_record():
    records_grid = grid()
    rows = records(30, DIMENSION, 3)
    whole, rotated = np.zeros(DIMENSION, np.int64), np.zeros(LENGTH, np.int64)
    add_records(rows, np.empty(0, np.int8), None, records_grid, whole)
    for row in rows:
        alone = np.zeros(DIMENSION, np.int64)
        add_records(row[None], np.empty(0, np.int8), None, records_grid, alone)
        rotated += rotate_integers(alone, SEED, 5)
    assert np.array_equal(rotate_integers(whole, SEED, 5), rotated)


def test_no_bit_depends_on_the_batch(case):
    """Position, company, dtype and memory layout: a record adds the same integers."""
    records_grid, kept, signs = case
    with np.errstate(over="ignore"):
        rows = records(40, records_grid.dimension, 6).astype(np.float32)

    def added(given):
        total = np.zeros(records_grid.width, np.int64)
        add_records(given, signs, kept, records_grid, total)
        return total

    alone = [added(row[None].copy()) for row in rows]
    assert np.array_equal(added(rows), sum(alone))
    assert np.array_equal(added(rows[::-1].copy()), sum(alone))
    for row, one in zip(rows, alone, strict=True):
        shifted = np.empty(row.size + 1, np.float32)[1:]  # another alignment
        shifted[:] = row
        assert np.array_equal(added(shifted[None]), one)
        if np.abs(row).max() < 1e30:  # larger squares count as broken in neither or both
            assert np.array_equal(added(row[None].astype(np.float64)), one)


def test_large_dimensions_too():
    random = np.random.default_rng(0)
    records_grid = grid(dimension=5000, length=5120, kept=5120, scale=64.0, l2=64.0, linf=2.0)
    rows = (random.standard_normal((20, 5000)) * np.logspace(-4, 1, 20)[:, None]).astype(np.float32)
    signs = rotation_signs(SEED, 0, 5120)
    squares, largest = exact_bounds(records_grid)
    for row in rows:
        total = np.zeros(5120, np.int64)
        add_records(row[None], signs, None, records_grid, total)
        assert sum(int(v) ** 2 for v in total) <= squares
        assert np.abs(total).max() <= largest


def test_a_square_sum_that_overflows_int64_is_clipped_all_the_same():
    line = np.full(1000, 2**32, np.int64)
    with np.errstate(over="ignore"):
        assert int((line * line).sum()) == 0  # the trap
    assert clip_units(line, 2.0**60, np.empty(256))
    assert sum(int(v) ** 2 for v in line) <= 2**60
    assert len(set(line.tolist())) == 1
    assert line[0] > 0


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_clipping_goes_towards_zero_and_keeps_what_is_within(dtype):
    line = np.array([3, -4, 0, 12], dtype)
    assert not clip_units(line, 169.0001, np.empty(256))
    assert line.tolist() == [3, -4, 0, 12]
    assert clip_units(line, 168.9, np.empty(256))
    assert line.tolist() == [2, -3, 0, 11]
    assert clip_units(line, 0.5, np.empty(256))
    assert line.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("length", [1, 2, 8, 12, 20, 28, 64, 96, 4096, 5120, 12288, 65536])
def test_32_bit_transforms_are_exact(length):
    random = np.random.default_rng(0)
    wide = random.integers(-1000, 1000, length)
    narrow = wide.astype(np.int32)
    _transform(wide)
    _transform(narrow)
    assert np.array_equal(wide, narrow)


def test_counts_are_told_apart():
    records_grid = grid(linf=3.0)
    rows = np.zeros((5, DIMENSION))
    rows[0, 0], rows[1, 0], rows[2, 0] = 0.1, 50.0, np.nan
    signs = rotation_signs(SEED, 5, LENGTH)
    counts = add_records(rows, signs, None, records_grid, np.zeros(LENGTH, np.int64))
    assert (counts.broken, counts.clipped, counts.clamped) == (1, 1, 0)
    assert math.isclose(counts.squared_norms, 64 * (0.01 + 2500.0))
    flat = grid(dimension=LENGTH, linf=3.0, rotate=False)
    counts = add_records(np.eye(LENGTH)[:2], signs[:0], None, flat, np.zeros(LENGTH, np.int64))
    assert counts.clamped == 2


def test_wrap_around_of_the_sum_is_harmless(case):
    records_grid, kept, signs = case
    rows = records(10, records_grid.dimension, 8)
    plain = np.zeros(records_grid.width, np.int64)
    add_records(rows, signs, kept, records_grid, plain)
    for start, step in itertools.product([2**63 - 1, -(2**63)], [1, -1]):
        total = np.full(records_grid.width, start, np.int64)
        add_records(rows * step, signs, kept, records_grid, total)
        expected = [(start + step * int(p)) % 2**64 for p in plain]
        assert [int(t) % 2**64 for t in total] == expected
