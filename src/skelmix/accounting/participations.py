"""How many rounds of a run one participant contributes to: a law that does not depend on its data."""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from skelmix.accounting.binomial_bounds import binomial
from skelmix.accounting.gaussian.transforms import power
from skelmix.arrays import ComplexArray, FloatArray
from skelmix.errors import InvalidInput
from skelmix.validation import positive, probability, whole

_UNIT = 2.0**-53


@dataclass(frozen=True)
class Participations:
    """How many rounds of a run may contain one participant's vector: min(Bin(rounds, q), cap).

    sampling_probability: q, the chance to be in a round, drawn afresh for every round (Poisson cohorts, or
    cohorts of a fixed size; not shuffled epochs). 1 stands for an aggregator that may pick the participant
    every time. cap: the number of contributions after which the participant itself sends zero, None for no
    cap.

    Example:

        >>> Participations(rounds=1_000, sampling_probability=0.004).expected
        4.000000000004
        >>> Participations(rounds=1_000, cap=8).most
        8
    """

    rounds: int
    sampling_probability: float = 1.0
    cap: int | None = None

    def __post_init__(self) -> None:
        whole(1, rounds=self.rounds)
        positive(sampling_probability=self.sampling_probability)
        if self.sampling_probability > 1:
            raise InvalidInput(
                f"sampling_probability = {self.sampling_probability!r}: must be in (0, 1]; "
                "divide the expected cohort by the population"
            )
        if self.cap is not None:
            whole(1, cap=self.cap)

    @property
    def most(self) -> int:
        """The largest number of contributions that is possible."""
        return self.rounds if self.cap is None else min(self.rounds, self.cap)

    @property
    def fixed(self) -> bool:
        """Whether the number is known beforehand."""
        return self.sampling_probability == 1

    @property
    def capped(self) -> bool:
        """Whether the cap is below the number of rounds."""
        return self.most < self.rounds

    @property
    def expected(self) -> float:
        """An upper bound on the expected number of contributions."""
        return min(self.most, self.rounds * self.sampling_probability * (1 + 1e-12))

    def masses(self) -> tuple[NDArray[np.int64], FloatArray, float]:
        """(counts, upper bounds on their probabilities, upper bound on the probability of larger counts).

        Fewer contributions than the smallest listed count are treated as that count, which never understates
        the loss.
        """
        if self.fixed:
            return np.array([self.most]), np.ones(1), 0.0
        return _masses(self)

    def log_moment(self, exponent: float) -> float:
        """A bound on ln E[e^(exponent·K)] for the number K of contributions.

        From above for exponents >= 0; for others up to masses of 1e-280.
        """
        if self.fixed:
            return self.most * exponent
        free = self.rounds * _log_mixture(self._probability_from_above, exponent)
        if not self.capped:
            return free
        counts, masses, above = self.masses()
        terms = np.append(
            np.log(masses) + exponent * counts, exponent * self.most - 640 if above else -np.inf
        )
        listed = float(logsumexp(terms))
        return min(free, listed, self.most * exponent) if exponent >= 0 else listed

    def generating(self, z: ComplexArray, error: float = 0.0) -> tuple[ComplexArray, FloatArray]:
        """(E[z^K]; a bound on how far each is from E[y^K] where |y - z| <= error, rounding included).

        For |z| up to 1 + error. |E[z^K] - E[y^K]| <= error·E[K·(|z| + error)^(K-1)], the slope at the largest
        modulus.
        """
        if self.fixed:
            values = power(z, self.most)
            slope = self.most * (np.abs(z) + error) ** (self.most - 1)
            return values, slope * error + math.expm1(3 * self.most * _UNIT) * np.abs(values)
        if not self.capped:
            q = self._probability_from_above
            base = 1 - q + q * z  # its error is below 4 units in the last place of 1
            values, off = power(base, self.rounds), q * error + 4 * _UNIT
            slope = self.rounds * (np.abs(base) + off) ** (self.rounds - 1)
            return values, slope * off + math.expm1(3 * self.rounds * _UNIT) * np.abs(values)
        return self._capped_generating(z, error)

    def _capped_generating(self, z: ComplexArray, error: float) -> tuple[ComplexArray, FloatArray]:
        counts, masses, above = self.masses()
        total, modulus, slope = np.zeros_like(z), np.zeros(z.shape), np.zeros(z.shape)
        length = np.abs(z) + error
        for mass in masses[::-1]:  # Horner's rule, for the value, its modulus and the slope of that
            total = total * z + mass
            slope = slope * length + modulus
            modulus = modulus * length + mass
        first = int(counts[0])
        slope = slope * length**first + (first * modulus * length ** max(first - 1, 0) if first else 0.0)
        slope += self.most * above * length ** (self.most - 1)
        modulus = modulus * length**first + above * length**self.most
        values = (
            total * power(z, first) + above * power(z, self.most)
            if first
            else total + above * power(z, self.most)
        )
        products = len(masses) + first + self.most
        return values, slope * error + math.expm1(6 * products * _UNIT) * modulus

    @property
    def _probability_from_above(self) -> float:
        return math.nextafter(float(self.sampling_probability), 1.0)


def _log_mixture(q: float, exponent: float) -> float:
    """ln(1 - q + q·e^exponent)."""
    if exponent < 30:
        return math.log1p(q * math.expm1(exponent))
    return float(np.logaddexp(math.log1p(-q), math.log(q) + exponent)) if q < 1 else exponent


@functools.lru_cache(maxsize=64)
def _masses(participations: Participations) -> tuple[NDArray[np.int64], FloatArray, float]:
    law = binomial(participations.rounds, participations._probability_from_above)
    first, mass, above = law.first, law.mass.copy(), law.above
    mass[0] += law.below
    most = participations.most  # e^-640 is about 1e-278: more than `above` ever is
    if most <= first:
        return np.array([most]), np.ones(1), 0.0
    if most <= law.last:
        mass = mass[: most - first + 1]
        mass[-1], above = law.at_least(most), 0.0
    return first + np.arange(len(mass)), mass, above


def smallest_cap(rounds: int, sampling_probability: float, exceeded: float = 1e-6) -> int:
    """The smallest cap that a participant would exceed with a probability below `exceeded`.

    The least k with P(Bin(rounds, sampling_probability) > k) < exceeded, the tail taken from above. It hardly
    ever costs anybody a contribution, and it holds against an aggregator that picks cohorts at will.

    Example:

        >>> smallest_cap(1_000, 0.04)
        73
    """
    probability(exceeded=exceeded)
    run = Participations(rounds, sampling_probability)
    if run.fixed:
        return rounds
    law = binomial(rounds, run._probability_from_above)
    # the tail beyond `rounds` is empty
    return max(1, bisect_left(range(rounds), True, key=lambda cap: law.at_least(cap + 1) < exceeded))
