"""The logarithm of a summed noise law's pmf, far into its tails, with bounds on what lies beyond."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.accounting.rdp.closed_form import convolution_gap
from skelmix.arrays import FloatArray
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.noise.laws import DiscreteGaussian, DiscreteGaussianSum, Law, Skellam


@dataclass(frozen=True)
class Kind:
    """A noise law as this package sees it: Skellam of variance v, or a sum of discrete Gaussians.

    `copies` discrete Gaussians have v = nσ²; copies = 0 marks Skellam.
    """

    v: float
    copies: int


def kind_of(law: Law) -> Kind:
    """The kind of a symmetric integer law; other laws raise `InvalidInput`."""
    if isinstance(law, Skellam):
        return Kind(2.0 * float(law.rate), 0)
    if isinstance(law, DiscreteGaussian):
        return Kind(float(law.parameter), 1)
    if isinstance(law, DiscreteGaussianSum):
        return Kind(float(law.parameter) * law.copies, law.copies)
    raise InvalidInput(f"law = {law!r}: the mixture bound knows Skellam and (sums of) discrete Gaussian laws")


def integer_bounds(kind: Kind, order: int) -> FloatArray:
    """Rows (A, B, C): each bounds D_order(P_s‖P0) by A·s² + B·s + C at every integer shift s >= 1.

    Skellam: the two branches of Agarwal, Kairouz, Liu 2021, Theorem 3.5. Discrete Gaussians: Kairouz, Liu,
    Steinke 2021 (Theorem 7 of Bao et al. 2022), its first branch and its expanded second one; a single one is
    exact. Infinite where none is known (σ < 1/2).
    """
    v = kind.v
    if kind.copies == 0:
        return np.array(
            [
                [order / (2 * v) + (2 * order - 1) / (4 * v * v), 1.5 / (v * v), 0.0],
                [order / (2 * v), 1.5 / v, 0.0],
            ]
        )
    gap = convolution_gap(v / kind.copies, kind.copies)
    if gap == math.inf:
        return np.array([[np.inf, 0.0, 0.0]])
    return np.array(
        [[order / (2 * v), 0.0, gap], [order / (2 * v), order * gap / math.sqrt(v), order / 2 * gap**2]]
    )


@functools.lru_cache(maxsize=16)
def log_masses(kind: Kind, length: int) -> tuple[FloatArray, FloatArray]:
    """The logarithms of the masses, and how far the law's steps are from concave: (L, concavity_gap).

    L[k] = ln P0(k) for k = 0..length-1 at least.

    concavity_gap[k] is at least twice the distance of g(j) = L[j-1] - L[j], over all j >= k, from a
    rising, odd function of j - 1/2 that is concave on j >= 1; it does not rise with k. The table always
    covers 13 deviations, so that what is beyond it does not touch the normalisation.
    """
    length = max(length, math.ceil(13 * math.sqrt(kind.v)) + 64)
    if kind.copies == 0:
        return _skellam(kind.v, length), _skellam_concavity_gap(kind.v, length)
    if kind.copies == 1 or convolution_gap(kind.v / kind.copies, kind.copies) < 1e-13:
        k = np.arange(length, dtype=np.longdouble)
        return _normalised(-k * k / (2 * np.longdouble(kind.v))), np.full(length, 1e-12)
    length = max(length, kind.copies // 2 + 2)  # half a period: then the steps seen are all there are
    masses, concavity_gap = _gaussian_sum(kind.v, kind.copies, length)
    return masses, np.full(length, concavity_gap)


def _skellam_concavity_gap(v: float, length: int) -> FloatArray:
    """Bounds on the steps g(j) of a Skellam law, for j >= 1.

    asinh(a) <= g(j) <= asinh(a) + ln(1 + j/(h² + (j-1/2)h)) with a = (j-1/2)/v, h = √((j-1/2)² + v²).

    Amos 1974 and Segura 2011, on I_{j-1}/I_j. From j = v + 1 on the gap falls with j; before, it stays below
    its value at 1 or below 0.31/v, whichever is larger.
    """
    j = np.maximum(np.arange(length, dtype=np.float64), 1.0)
    h = np.hypot(j - 0.5, v)
    gap = np.log1p(j / (h * h + (j - 0.5) * h))
    beyond = gap[-1] if length > v + 2 else 0.31 / v
    return np.asarray(np.maximum(np.maximum.accumulate(gap[::-1])[::-1], beyond) * (1 + 1e-12))


def _normalised(relative: NDArray[np.longdouble]) -> FloatArray:
    """L from ln(P0(k)/P0(0)); the mass beyond the array is far below the rounding of the sum."""
    total = 1 + 2 * np.exp(relative[1:])[::-1].sum()
    return np.asarray(relative - np.log(total), dtype=np.float64)


def _skellam(v: float, length: int) -> FloatArray:
    """From the ratios ρ_j = I_{j-1}(v)/I_j(v) = 2j/v + 1/ρ_{j+1}, run downwards as δ_j = ρ_j - 1.

    The recurrence shrinks errors by 1/(ρ_j ρ_{j+1}); it starts so far out that an error of relative size 1/v
    has shrunk below 1e-18 at `length`. Rounding adds up to at most a few √v·2^-53 relative to δ_j, which is
    the effect of a variance off by as much.
    """
    start = length + 80 + math.ceil(30 * v / length)
    steps = np.log1p(_ratios_less_one(v, start, length).astype(np.longdouble))
    return _normalised(-np.cumsum(steps))


@njit(cache=True, nogil=True)
def _ratios_less_one(v: float, start: int, length: int) -> FloatArray:
    delta = math.expm1(math.asinh((start + 0.5) / v))
    excesses = np.zeros(length)
    for j in range(start, 0, -1):
        delta = 2.0 * j / v - delta / (1.0 + delta)
        if j < length:
            excesses[j] = delta
    return excesses


def _gaussian_sum(v: float, copies: int, length: int) -> tuple[FloatArray, float]:
    """The masses of a sum of discrete Gaussians: P_n(k) = exp(-k²/(2nσ²))·ψ_n(k), ψ_n even and of period n.

    It has that period because shifting every summand by one multiplies both sides alike.

    ψ_{m+n}(k) = Σ_j exp(-(m+n)(j - km/(m+n))²/(2mnσ²)) ψ_m(j) ψ_n(k-j): non-negative terms, so relative
    precision in every tail. Costs about n^1.5 operations: under a second for 10,000 copies, six for 100,000.
    """
    k = np.arange(length, dtype=np.longdouble)
    parabola = -k * k / (2 * np.longdouble(v))
    sigma2 = v / copies
    psi, done = np.ones(1), 1
    for bit in bin(copies)[3:]:
        psi, done = _convolve(psi, done, psi, done, sigma2, length), 2 * done
        if bit == "1":
            psi, done = _convolve(psi, done, np.ones(1), 1, sigma2, length), done + 1
    index = np.arange(length) % copies
    index = np.minimum(index, copies - index)
    with np.errstate(divide="ignore"):
        log_psi = np.log(psi)[index]
    if not np.isfinite(log_psi).all():
        raise PrivacyUnattainable(
            f"{copies} shares of variance {sigma2:.3g}: their sum is out of float64's range; "
            "raise the scale or the noise"
        )
    steps = np.abs(np.diff(log_psi)).max(initial=0.0)
    return _normalised(parabola + log_psi), 2.0 * float(steps)


def _convolve(a: FloatArray, m: int, b: FloatArray, n: int, sigma2: float, reach: int) -> FloatArray:
    """ψ_{m+n} on 0..min(reach, (m+n)//2), scaled to 1 at 0, from ψ_m and ψ_n on such ranges."""
    spread = math.sqrt(sigma2 * m * n / (m + n))
    width = math.ceil(13 * spread) + 2
    margin = width + 2
    size = min(reach + margin * 2, (m + n) // 2) + 1
    return _periodic_sum(a, m, b, n, 0.5 / spread**2, width, size)


@njit(cache=True, nogil=True)
def _periodic_sum(
    a: FloatArray, m: int, b: FloatArray, n: int, rate: float, width: int, size: int
) -> FloatArray:
    out = np.empty(size)
    for k in range(size):
        centre = k * (m / (m + n))
        middle = int(np.rint(centre))
        total = 0.0
        for j in range(middle - width, middle + width + 1):
            u = j % m
            w = (k - j) % n
            u = min(u, m - u)
            w = min(w, n - w)
            if u < len(a) and w < len(b):
                total += math.exp(-rate * (j - centre) ** 2) * a[u] * b[w]
            else:
                total = np.nan  # a factor is needed where it was not computed: must not pass for zero
        out[k] = total
    return out / out[0]
