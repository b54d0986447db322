"""Gaussian differential privacy of integer noise: one round is as private as one Gaussian mechanism.

Neighbours differ in one participant's vector x against the zero vector; P_x is the law of the stochastically
rounded x plus the summed noise. A certificate says that N(0,1) against N(mu,1) dominates P_0 against P_x,
both ways round, once P_x (and only P_x) has been moved by at most `slack` in total variation. The proofs are
in docs/explanation/gaussian-certificates.md. The same numbers hold for one record on top of any sum of
others, with the law that includes the record as the moved one: docs/explanation/any-base-point.md.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri

from skelmix.accounting.gaussian.noise_tables import NoiseTable, noise_table
from skelmix.arrays import FloatArray
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.noise.laws import Law
from skelmix.validation import non_negative, positive, probability, whole

_MARGIN = (
    1e-9  # relative; covers float64: masses to 4e-16, sums of at most 1e6 of them, ndtri to 1e-15, twice over
)
_INTEGER_TAIL = 1e-40  # mass that the integer certificate cuts off per coordinate


@dataclass(frozen=True)
class GaussianCertificate:
    """One unsampled round with ‖x‖₂ <= radius (and |x_j| <= linf) is dominated by N(0,1) against N(mu,1).

    Exactly: there is a law Q within total variation `slack` of P_x such that every test between P_0 and Q, in
    either role, is at most as good as the best one between N(0,1) and N(mu,1). `ideal` is the mu that no
    certificate of this kind can beat. The mirror image holds too: P_0 may be moved by at most `slack` in
    place of P_x (docs/explanation/aggregator.md, section 3).

    Example: `gaussian_certificate(0.6344)`, the central Gaussian's; `plan.report.mu` is that of a plan.
    """

    kind: Literal["gdp", "flat", "gaussian"]
    mu: float
    slack: float
    ideal: float
    radius: float
    dimension: int
    linf: float = math.inf

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier of the central Gaussian mechanism that dominates: 1/mu."""
        return 1 / self.mu if self.mu else math.inf


@functools.lru_cache(maxsize=512)
def gdp_certificate(law: Law, radius: float, dimension: int, slack: float) -> GaussianCertificate:
    """The certificate of SMM (or of discrete Gaussian noise) for ‖x‖₂ <= radius, nothing else being clipped.

    The radius is in scaled units.

    `law` is that of the summed noise, `slack` in (0, 1) the total variation that a round may cost: the cut is
    placed so that √dimension·radius·δ₁ <= slack; δ₁ = 2·S(K-1) pays for either orientation of a coordinate.
    Raises `PrivacyUnattainable` where the noise is too small for the radius.
    """
    non_negative(radius=radius)
    probability(slack=slack)
    whole(1, dimension=dimension)
    if radius == 0:
        return GaussianCertificate("gdp", 0.0, 0.0, 0.0, 0.0, dimension)
    coordinates = math.sqrt(dimension) * radius  # bounds ‖x‖₁
    shift = math.ceil(radius)
    cut_mass = slack / (2 * coordinates) / (1 + _MARGIN)
    far = law.support_bound(min(-1.0, math.log(cut_mass)))[1]
    table = noise_table(law, far + shift + 2)
    beyond, z = _normal_scores(table)
    cut = max(1, int(np.argmax(beyond <= cut_mass)) + 1)  # the least K with S(K-1) small enough
    if beyond[cut - 1] > cut_mass or cut + shift >= len(z):
        raise PrivacyUnattainable(
            f"slack = {slack:.3g} leaves no cut for noise of variance {law.variance:.4g}"
        )
    # rounding x upwards by p costs at most p·f(j)/φ(z_j) for every j up to the cut; whole shifts go beyond it
    slopes = table.mass[: cut + 1] * np.exp(z[: cut + 1] ** 2 / 2) * math.sqrt(2 * math.pi)
    steps = np.diff(z[cut : cut + shift + 1])
    largest = max(float(slopes.max()), float(steps.max(initial=0.0)) + _MARGIN * float(z[0]))
    return GaussianCertificate(
        "gdp",
        largest * radius * (1 + _MARGIN + 4 * table.error),
        2 * coordinates * float(beyond[cut - 1]) * (1 + _MARGIN + 4 * table.error),
        2 * float(z[0]) * radius,
        radius,
        dimension,
    )


@functools.lru_cache(maxsize=512)
def integer_gdp_certificate(law: Law, radius: float, dimension: int | None = None) -> GaussianCertificate:
    """The certificate of noise on integer vectors s with ‖s‖₂ <= radius (the plain Skellam mechanism).

    mu = radius·(largest step).

    The largest step of Φ⁻¹(F) is taken over all levels but tails of mass 1e-40 per coordinate, which are paid
    for as slack (at most radius² coordinates are not zero, and at most `dimension` if given).
    """
    non_negative(radius=radius)
    if dimension is not None:
        whole(1, dimension=dimension)
    touched = math.floor(radius**2) if dimension is None else min(dimension, math.floor(radius**2))
    if touched == 0:
        return GaussianCertificate("gdp", 0.0, 0.0, 0.0, radius, dimension or 1)
    shift = math.floor(radius)
    cut = law.support_bound(math.log(_INTEGER_TAIL))[1]
    table = noise_table(law, cut + shift + 2)
    _, z = _normal_scores(table)
    largest = float(np.diff(z[: cut + shift + 1], prepend=-z[0]).max()) + 1e-13
    return GaussianCertificate(
        "gdp",
        largest * radius * (1 + _MARGIN + 8 * table.error / float(z[0])),
        touched * _INTEGER_TAIL,
        2 * float(z[0]) * radius,
        radius,
        dimension or touched,
    )


def gaussian_certificate(noise_multiplier: float) -> GaussianCertificate:
    """The central Gaussian mechanism itself: mu = 1/noise_multiplier, no slack.

    Example:

        >>> gaussian_certificate(2.0).mu
        0.5
    """
    positive(noise_multiplier=noise_multiplier)
    return GaussianCertificate("gaussian", 1 / noise_multiplier, 0.0, 1 / noise_multiplier, 1.0, 1)


def _normal_scores(table: NoiseTable) -> tuple[FloatArray, FloatArray]:
    """S(k) = P(X > k) and z_k = Φ⁻¹(1 - S(k)) for k = 0..reach-1; z_{-k-1} = -z_k by symmetry."""
    beyond = np.cumsum(table.mass[:0:-1])[::-1]  # from the far end: positive terms, nothing cancels
    if not beyond[0] < 0.5:
        raise InvalidInput("the noise law has no mass at zero: this is not a certified table")
    return beyond, -ndtri(beyond)
