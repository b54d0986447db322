"""When honest survivors on a ring stay connected: all sets of bad places on small circles, one by one."""

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest

from skelmix.secagg.graph import _cut_is_unlikely

CIRCLES = [(n, half) for n in range(4, 14) for half in range(1, n // 4 + 1)]


def connected(n: int, half: int, bad: frozenset[int]) -> bool:
    """Whether those who are left reach each other over steps of at most `half` places."""
    left = set(range(n)) - bad
    reached: set[int] = set()
    frontier = {min(left)} if left else set()
    while frontier:
        reached |= frontier
        near = {(place + step) % n for place in frontier for step in range(-half, half + 1)}
        frontier = (near & left) - reached
    return reached == left


def bad_rows(n: int, half: int, bad: frozenset[int]) -> list[set[int]]:
    """All rows of `half` places that are bad throughout."""
    rows = ({(start + step) % n for step in range(half)} for start in range(n))
    return [row for row in rows if row <= bad]


@pytest.mark.parametrize(("n", "half"), CIRCLES)
def test_survivors_are_connected_unless_two_disjoint_rows_are_bad(n, half):
    one_row_only = 0
    for count in range(n + 1):
        cut = 0
        for places in combinations(range(n), count):
            bad = frozenset(places)
            whole = connected(n, half, bad)
            rows = bad_rows(n, half, bad)
            if not any(one.isdisjoint(other) for one, other in combinations(rows, 2)):
                assert whole
                one_row_only += bool(rows)
            cut += not whole
        # the union bound over pairs of rows, as it is compared with 2^-42
        bound = Fraction(n * (n - 2 * half + 1), 2) * Fraction(comb(count, 2 * half), comb(n, 2 * half))
        assert Fraction(cut, comb(n, count)) <= bound
        if count == 2 * half:  # two rows and nothing else: exact but for pairs that touch and are one gap
            assert cut == n * (n - 2 * half - 1) // 2
    assert one_row_only


def test_the_bound_is_compared_with_its_target_in_integers():
    for n, bad in ((100, 30), (240, 36), (240, 76), (1000, 226)):
        for degree in range(2, 80, 2):
            probability = Fraction(n * (n - degree + 1), 2) * Fraction(comb(bad, degree), comb(n, degree))
            assert _cut_is_unlikely(n, bad, degree) == (probability < Fraction(1, 2**42))
