"""The slow, exact reference samplers, as printed, over one `randint`.

Algorithms 7 to 10 of Bao et al. 2022 (Appendix A) and the discrete Gaussian of Canonne, Kamath and Steinke
2020 (their Algorithms 1 to 3). `randint(n)` must give an exactly uniform integer in 1..n; it is the only
randomness. The fast sampler of `skelmix.noise.table` is tested against these; nothing else uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.validation import positive, whole

RandInt = Callable[[int], int]


def randint_from(entropy: Entropy | None = None) -> RandInt:
    """RandInt(n), exactly uniform on 1..n by rejection, from `skelmix.noise.entropy`; for one thread."""
    source = system_entropy() if entropy is None else entropy
    pool, used = b"", 0

    def randint(n: int) -> int:
        nonlocal pool, used
        bits = (n - 1).bit_length()
        count = (bits + 7) >> 3
        while True:
            if used + count > len(pool):
                pool, used = source.bytes(max(4096, count)), 0
            drawn = int.from_bytes(pool[used : used + count], "little") & ((1 << bits) - 1)
            used += count
            if drawn < n:
                return drawn + 1

    return randint


def poisson_one(randint: RandInt) -> int:
    """Algorithm 7 (Duchon and Duvignau): a sample of Poisson(1)."""
    n, g, k = 1, 0, 1
    while True:
        i = randint(n + 1)
        if i == n + 1:
            k += 1
        elif i > g:
            k, g = k - 1, n + 1
        else:
            return k
        n += 1


def poisson_below_one(m_x: int, m_y: int, randint: RandInt) -> int:
    """Algorithm 8: a sample of Poisson(m_x/m_y), 0 < m_x < m_y."""
    whole(1, m_y - 1, m_x=m_x)
    return sum(bernoulli(m_x, m_y, randint) for _ in range(poisson_one(randint)))


def bernoulli(p_x: int, p_y: int, randint: RandInt) -> int:
    """Algorithm 9: 1 with probability p_x/p_y, else 0."""
    whole(1, p_y=p_y)
    whole(0, p_y, p_x=p_x)
    return 1 if randint(p_y) <= p_x else 0


def poisson(m_x: int, m_y: int, randint: RandInt) -> int:
    """Algorithm 10: a sample of Poisson(m_x/m_y), m_x >= 0, m_y > 0."""
    whole(0, m_x=m_x)
    whole(1, m_y=m_y)
    k = 0
    while m_x >= m_y:
        k += poisson_one(randint)
        m_x -= m_y
    if m_x > 0:
        k += poisson_below_one(m_x, m_y, randint)
    return k


def skellam(rate: int | float | Fraction, randint: RandInt) -> int:
    """A sample of Sk(rate, rate): the difference of two runs of Algorithm 10."""
    positive(rate=rate)
    exact = Fraction(rate)
    return poisson(exact.numerator, exact.denominator, randint) - poisson(
        exact.numerator, exact.denominator, randint
    )


def bernoulli_exp(gamma: Fraction, randint: RandInt) -> int:
    """1 with probability exp(-gamma), gamma >= 0 rational (Canonne et al., Algorithm 1)."""
    if gamma < 0:
        raise InvalidInput(f"gamma = {gamma}: must be >= 0")
    while gamma > 1:
        if not bernoulli_exp(Fraction(1), randint):
            return 0
        gamma -= 1
    k = 1
    while bernoulli(gamma.numerator, gamma.denominator * k, randint):
        k += 1
    return k % 2


def discrete_laplace(scale: int, randint: RandInt) -> int:
    """P(X = k) proportional to exp(-|k|/scale), scale a whole number (Canonne et al., Algorithm 2, s = 1)."""
    whole(1, scale=scale)
    while True:
        u = randint(scale) - 1
        if not bernoulli_exp(Fraction(u, scale), randint):
            continue
        v = 0
        while bernoulli_exp(Fraction(1), randint):
            v += 1
        magnitude = u + scale * v
        negative = randint(2) == 2
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def discrete_gaussian(variance: int | float | Fraction, randint: RandInt) -> int:
    """A sample of N_Z(0, variance) (Canonne et al., Algorithm 3): Laplace proposals, rejected exactly."""
    positive(variance=variance)
    sigma2 = Fraction(variance)
    scale = isqrt(int(sigma2)) + 1
    while True:
        proposal = discrete_laplace(scale, randint)
        if bernoulli_exp((abs(proposal) - sigma2 / scale) ** 2 / (2 * sigma2), randint):
            return proposal
