"""The flat certificate: with small coordinates, integer noise is the central Gaussian for every accountant.

‖x‖₂ <= radius and |x_j| <= linf. Hockey-stick divergences are contour integrals of E[Π r_{x_j}^t];
`expansion` bounds how far that is from the Gaussian's exp(radius²·A(t)), hence how far the divergences are
from the Gaussian's, for every ε; a slightly larger Gaussian then dominates. Proof, step by step:
docs/explanation/gaussian-certificates.md, section 3.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import log_ndtr

from skelmix.accounting.bisection import boundary
from skelmix.accounting.gaussian.certificate import GaussianCertificate
from skelmix.accounting.gaussian.contour_integrals import (
    GRID,
    STEP,
    Contour,
    Middle,
    contour,
    contour_end,
    contour_errors,
    series_error,
)
from skelmix.accounting.gaussian.expansion import Expansion, Ratios, ratios
from skelmix.accounting.gaussian.noise_tables import noise_table
from skelmix.accounting.gaussian.tilted import TiltedExpansion
from skelmix.arrays import FloatArray
from skelmix.errors import PrivacyUnattainable
from skelmix.noise.laws import Law
from skelmix.validation import non_negative, positive, probability, whole

_SMOOTHING = (
    0.012,
    0.018,
    0.027,
    0.04,
    0.06,
    0.09,
    0.13,
    0.2,
    0.3,
)  # extra Gaussian observation, as a share of mu
_SPLIT = 0.1  # coordinates whose |t|·x·χ is above this are expanded under the tilted law
_TILTED_END = 9.0  # largest ω there, in units of 1/mu: the Gaussian factor is e^-40
_PLAIN, _FEW_LEVELS = 0.5, 500  # |t|·linf·χ, levels: below both, the tilted law is hardly needed
_MOST_TILTED = 4e4  # variance beyond which the tilted law costs seconds
_MIDDLE_COST = 1.2e7  # most cells times levels of the middle range's grid: some tenths of a second
_EPSILON_STEP = 0.01  # step of the grid in ε, in units of mu
_MU_CELLS = 16
_LARGEST_ETA = 0.5  # with a larger mu/ideal - 1, other bounds are better
_MOST_VARIANCE = 4e5  # with more, a certificate costs more, and gains less than 1 % over gdp
_LARGEST_LINF = 1.0  # largest coordinate, in deviations of the noise; with larger ones gdp and rdp are better
_LARGEST_LINF_AT_MANY_LEVELS = 0.1  # used where the tilted law is too expensive
_POLE = 0.03  # contours keep this distance from t = 0 and t = 1


@functools.lru_cache(maxsize=512)
def flat_certificate(
    law: Law, radius: float, linf: float, dimension: int, slack: float
) -> GaussianCertificate:
    """The certificate for every x with ‖x‖₂ <= radius and ‖x‖_∞ <= linf, in scaled units.

    `law` is that of the summed noise.

    mu = radius·χ·√(1+κ²)·(1+η'): χ² = E[(f(k-1)/f(k) - 1)²], κ the smoothing, η' what the contour integrals
    leave open. `slack` in (0, 1) pays for likelihood ratios beyond e^±ε*. It needs linf below the noise's
    deviation and noise several integers wide where linf is near it: raises `PrivacyUnattainable` where it
    proves nothing, with what to do. `dimension` is for the record: the bound does not depend on it. It holds
    for a record on top of any sum too: each contour pays for the larger error of Re t = u and Re t = 1 - u.
    """
    non_negative(radius=radius)
    positive(linf=linf)
    probability(slack=slack)
    whole(1, dimension=dimension)
    if radius == 0:
        return GaussianCertificate("flat", 0.0, 0.0, 0.0, 0.0, dimension, linf)
    linf = min(linf, radius)
    _refuse_hopeless(law, linf)
    values = _ratios(law, linf)
    ideal = radius * math.sqrt(values.chi_square)
    if ideal > 30:
        raise PrivacyUnattainable(
            f"noise of variance {law.variance:.4g} is too small for radius {radius:.4g}: raise the noise, "
            "or use bound='gdp' or bound='rdp'"
        )
    offsets = _offsets(ideal, slack)
    best = math.inf
    for expansion, tilted in _expansions(values, linf, offsets, ideal):
        lines = [contour(expansion, radius, ideal, offset, tilted) for offset in offsets.tolist()]
        best = min(best, _smallest_mu(lines, values, linf, radius, slack))
    if not best < math.inf:
        raise PrivacyUnattainable(
            f"linf = {linf:.4g} is too large against radius = {radius:.4g} for a flat certificate at "
            "this noise; lower linf, or use bound='gdp' or bound='rdp'"
        )
    best *= 1 + 1e-9  # rounding of what follows the expansion, which carries its own
    return GaussianCertificate("flat", best, slack, ideal, radius, dimension, linf)


Series = tuple[Expansion, TiltedExpansion | None]


def _expansions(values: Ratios, linf: float, offsets: FloatArray, mu: float) -> list[Series]:
    """The candidate expansions: outwards from x = 0 as far as that is good, then under the tilted law.

    With few levels, also outwards all the way: the end shows which is better.
    """
    highest, chi = 0.5 + float(offsets[-1]), math.sqrt(values.chi_square)
    unit = chi * math.hypot(highest, _TILTED_END / mu)  # |t|·χ
    if linf * unit <= _SPLIT or 1 / values.chi_square > _MOST_TILTED:
        return [(Expansion(values, linf, 1 - highest, highest), None)]
    reals = np.unique(np.concatenate([0.5 + offsets, 0.5 - offsets]))
    tilted = TiltedExpansion(values, _SPLIT / unit, linf, reals, _TILTED_END / mu)
    expansions: list[Series] = [(Expansion(values, _SPLIT / unit, 1 - highest, highest), tilted)]
    if linf * unit <= _PLAIN and values.reach < _FEW_LEVELS:
        expansions.append((Expansion(values, linf, 1 - highest, highest), None))
    return expansions


def _smallest_mu(lines: list[Contour], values: Ratios, linf: float, radius: float, slack: float) -> float:
    """The least mu over all smoothings tried; infinite if none dominates."""
    ideal = radius * math.sqrt(values.chi_square)
    lines = [line for line in lines if line.start > 0]
    offsets = np.array([line.offset for line in lines])
    best, misses, middle = math.inf, 0, None
    floor = _series_alone(lines, offsets, ideal, slack)
    for share in _shares(linf / radius, values.reach) if floor < math.inf else ():
        if best <= floor * math.hypot(1.0, share):
            break  # more smoothing cannot do better
        smoothing = share * ideal
        end = contour_end(smoothing)
        start = min(line.start for line in lines)
        highest = 0.5 + float(offsets[-1])
        middle = Middle(values, linf, start, end, highest, middle, ideal) if start < end else None
        errors = contour_errors(lines, middle, radius, ideal, smoothing)
        mu = _dominating(offsets, errors, ideal * math.hypot(1.0, share), slack)
        misses = 0 if mu < best else misses + 1
        best = min(best, mu)
        if misses == 2 and best < math.inf:  # a single worse value may come from an unlucky grid
            break
    return best


def _refuse_hopeless(law: Law, linf: float) -> None:
    """Refuse early where the contour integrals would fail slowly, or would cost more than they gain."""
    deviation = math.sqrt(law.variance)
    if law.variance > _MOST_VARIANCE:
        raise PrivacyUnattainable(
            f"noise of variance {law.variance:.4g}: with so many levels the Gaussian-DP certificate is "
            "within 1 % already; use bound='gdp'"
        )
    if law.variance > _MOST_TILTED and linf > _LARGEST_LINF_AT_MANY_LEVELS * deviation:
        raise PrivacyUnattainable(
            f"noise of variance {law.variance:.4g} has too many levels for linf = {linf:.4g}: "
            "use bound='gdp', which costs 3 % at most here, or a smaller scale"
        )
    if linf > _LARGEST_LINF * deviation:
        raise PrivacyUnattainable(
            f"linf = {linf:.4g} is not small against the noise's deviation {deviation:.4g}: "
            "no flat certificate; take more coordinates or another scale, or use bound='gdp' or bound='rdp'"
        )


def _ratios(law: Law, linf: float) -> Ratios:
    """The ratios at as many levels as high moments under tilted laws need: more for a larger linf."""
    shift = math.ceil(linf) + 1
    deviation = math.sqrt(law.variance)
    return ratios(noise_table(law, min(13 + 12 * linf / deviation, 22) * deviation + shift), shift)


def _series_alone(lines: list[Contour], offsets: FloatArray, ideal: float, slack: float) -> float:
    """A quick estimate of mu/`ideal` from the series alone, as if smoothing cost nothing.

    Infinite where a certificate is unlikely.
    """
    if not lines:
        return math.inf
    errors = np.array([series_error(line, ideal) for line in lines])
    return _dominating(offsets, errors, ideal, slack)


def _shares(flatness: float, levels: int) -> Sequence[float]:
    """Smoothings to try, from the least whose middle range is affordable."""
    longest = GRID * math.sqrt(_MIDDLE_COST / levels)
    return [share for share in _SMOOTHING if contour_end(share) * flatness <= longest] or [_SMOOTHING[-1]]


def _offsets(mu: float, slack: float) -> FloatArray:
    """Offsets from 1/2 of the real parts of the contours, up to the saddle point of the largest ε."""
    last = _largest_epsilon(mu * 1.05, slack) / mu
    offsets = np.arange(math.ceil(last / STEP) + 1) * (STEP / mu)
    return np.where(np.abs(offsets - 0.5) < _POLE, 0.5 + _POLE, offsets)


def _log_hockey_stick(epsilon: float, mu: float) -> float:
    """ln H_ε(N(mu,1)‖N(0,1))."""
    near = float(log_ndtr(mu / 2 - epsilon / mu))
    far = float(log_ndtr(-mu / 2 - epsilon / mu))
    return near + math.log(-math.expm1(min(epsilon + far - near, -1e-300)))


def _largest_epsilon(mu: float, slack: float) -> float:
    """ε* with H_ε*(N(mu,1)‖N(0,1)) <= slack."""
    goal = math.log(slack) - 1e-6
    high = mu * (mu / 2 + math.sqrt(2 * math.log(1 / slack)) + 1)
    if _log_hockey_stick(0.0, mu) <= goal:
        return 0.0
    from scipy.optimize import brentq  # loads slowly: clients that only check a plan do without

    return float(brentq(lambda e: _log_hockey_stick(e, mu) - goal, 0.0, high)) + 1e-9 * mu


def _dominating(offsets: FloatArray, errors: FloatArray, smoothed: float, slack: float) -> float:
    """The mu of a Gaussian pair that dominates the smoothed pair up to ε*; infinite if none is found."""

    def outweighs(log_eta: float) -> bool:
        return _outweighs(offsets, errors, smoothed, smoothed * (1 + math.exp(log_eta)), slack)

    lowest, highest = math.log(1e-6), math.log(_LARGEST_ETA)
    if not outweighs(highest):
        return math.inf
    return smoothed * (1 + math.exp(boundary(outweighs, lowest, highest, absolute=0.005)))


def _outweighs(offsets: FloatArray, errors: FloatArray, smoothed: float, mu: float, slack: float) -> bool:
    """Whether the Gaussian pair with `mu` dominates for every ε in [0, ε*(mu)].

    Its H_ε must be above that with `smoothed` by at least the error.

    The difference is the integral of ∂H_ε/∂m = φ(m/2 - ε/m) over m; a lower sum: |m/2 - ε/m| is largest at a
    corner of each cell of the grid in (ε, m). The error on an interval of ε is the larger one of both ends,
    for the best contour.
    """
    last = _largest_epsilon(mu, slack)
    grid = np.linspace(0.0, last, math.ceil(last / (_EPSILON_STEP * smoothed)) + 2)
    exponents = errors[:, None] + (0.5 - offsets)[:, None] * grid  # C_u·e^(ε(1-u)), monotone in ε
    error = np.maximum(exponents[:, :-1], exponents[:, 1:]).min(axis=0)
    m = np.linspace(smoothed, mu, _MU_CELLS + 1)[:, None]
    distance = np.abs(m / 2 - grid / m)
    distance = np.maximum(distance[1:], distance[:-1])
    distance = np.maximum(distance[:, 1:], distance[:, :-1])
    densities = np.exp(-(distance**2) / 2).sum(axis=0) * (
        (mu - smoothed) / _MU_CELLS / math.sqrt(2 * math.pi)
    )
    return bool((error <= np.log(densities)).all())
