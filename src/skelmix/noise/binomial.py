"""The binomial law, centred or not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, ctx
from numpy.typing import ArrayLike

from skelmix.arrays import FloatArray
from skelmix.errors import InvalidInput
from skelmix.noise.certified import ball, precision
from skelmix.noise.law import BallLaw, Number, bennett, exact, integers, spread
from skelmix.validation import positive, whole


@dataclass(frozen=True)
class Binomial(BallLaw):
    """Bin(trials, probability), or with `centred` minus its mean, which must then be an integer.

    trials >= 1 and 0 < probability < 1, int, Fraction or the exact value of a float.
    """

    trials: int
    probability: Number
    centred: bool = False

    def __post_init__(self) -> None:
        whole(1, trials=self.trials)
        positive(probability=self.probability)
        if self.probability >= 1:
            raise InvalidInput(
                f"probability = {self.probability!r}: must be strictly between 0 and 1; "
                "pass 0.5 for a fair coin"
            )
        object.__setattr__(self, "trials", int(self.trials))
        object.__setattr__(self, "probability", exact(self.probability))
        if self.centred and (Fraction(self.probability) * self.trials).denominator != 1:
            raise InvalidInput(
                f"trials = {self.trials}, probability = {self.probability!r}: a centred binomial "
                "needs an integer mean; with probability 1/2 take an even number of trials"
            )

    @property
    def _shift(self) -> int:
        return int(Fraction(self.probability) * self.trials) if self.centred else 0

    @property
    def mean(self) -> float:
        return 0.0 if self.centred else self.trials * float(self.probability)

    @property
    def variance(self) -> float:
        return float(self.trials * Fraction(self.probability) * (1 - Fraction(self.probability)))

    @property
    def symmetric(self) -> bool:
        return self.centred and Fraction(self.probability) == Fraction(1, 2)

    def log_pmf(self, k: ArrayLike) -> FloatArray:
        from scipy import special  # only analysis needs it: clients start faster without

        values = integers(k) + self._shift
        n, p = self.trials, float(self.probability)
        inside = (values >= 0) & (values <= n)
        v = np.where(inside, values, 0).astype(np.float64)
        log_choose = -np.log1p(n) - special.betaln(n - v + 1, v + 1)
        return np.where(inside, log_choose + special.xlogy(v, p) + special.xlog1py(n - v, -p), -np.inf)

    def sum_of(self, n: int) -> Binomial:
        whole(1, n=n)
        return Binomial(self.trials * int(n), self.probability, self.centred)

    def log_tail(self, distance: float) -> float:
        # Hoeffding (1963), Theorem 1, and Bennett's inequality with steps of at most 1: the better one
        return min(-2 * distance * distance / self.trials, bennett(distance, self.variance))

    def exact_cdf(self, k: int) -> Fraction | None:
        n, p = self.trials, Fraction(self.probability)
        k += self._shift
        if p == Fraction(1, 2) and n == 2 * k + 1:
            return Fraction(1, 2)
        if n * p.denominator.bit_length() > 1 << 16:
            return None
        up, down = p.numerator, p.denominator - p.numerator
        return Fraction(
            sum(math.comb(n, j) * up**j * down ** (n - j) for j in range(min(k, n) + 1)), p.denominator**n
        )

    def _pmf_ball(self, k: int) -> arb:
        k, n = k + self._shift, self.trials
        if not 0 <= k <= n:
            return arb(0)
        p = ball(self.probability)
        choose = arb(n + 1).lgamma() - arb(k + 1).lgamma() - arb(n - k + 1).lgamma()
        return (choose + p.log() * k + (1 - p).log() * (n - k)).exp()

    def masses(self, tail_bits: int) -> tuple[int, list[arb]]:
        n, shift = self.trials, self._shift
        odds = ball(Fraction(self.probability) / (1 - Fraction(self.probability)))
        inverse = 1 / odds
        mode = min(n, math.floor((n + 1) * Fraction(self.probability)))
        with precision(ctx.prec + 64):  # the logarithms of the mode's mass cancel
            top = self._pmf_ball(mode - shift)
        first, balls = spread(
            mode, top, tail_bits, lambda k: odds * (n - k) / (k + 1), lambda k: inverse * k / (n - k + 1)
        )
        return (0, balls[mode - first :]) if self.symmetric else (first - shift, balls)
