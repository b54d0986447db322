"""Every mechanism and bound attacked over bits, ε and dimensions: no lower bound may exceed its claim.

The settings share one error: the statement "none of these claims was refuted" holds with the confidence of
the whole study.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from skelmix.audit.release import PAIRS, audit_release
from skelmix.mechanisms.base import Mechanism
from skelmix.mechanisms.registry import MECHANISMS
from skelmix.planning import Cohort, privacy_report

#: a large δ, so that an audit's trials can resolve it
DELTA = 1e-2

#: total error of the study
ERROR = 1e-6

#: a stored row whose claim differs relatively by more than this from today's is played again
DRIFT = 1e-3

_ALONE = Cohort(1, 1, sampling="none")
_COORDINATES = 1 << 26  # of all games of a setting together
_MOST_TRIALS = 400_000
_LARGEST_SCALE = 64.0  # γ, integer steps per unit


@dataclass(frozen=True)
class Setting:
    """What is attacked. epsilon: the central Gaussian's with the same noise; the claim itself is computed."""

    mechanism: str
    bound: str
    bits: int
    epsilon: float
    dimension: int
    shares: int

    def build(self) -> Mechanism:
        """The mechanism at about this ε, with a scale at which the sum nearly fills the modulus."""
        from skelmix.accounting.gaussian import largest_mu

        multiplier = 1 / largest_mu(self.epsilon, DELTA, 1, 1.0)
        scale = min(_LARGEST_SCALE, 2.0**self.bits / (8 * (multiplier + 1)))
        any_noise = MECHANISMS[self.mechanism].for_bound(
            self.bound,
            dimension=self.dimension,
            bits=self.bits,
            scale=scale,
            clip_norm=1.0,
            total_noise=1.0,
            shares=self.shares,
        )
        noise = any_noise.noise_for_multiplier(multiplier)
        factor = 4.0 if self.bound == "composition" else 1.0  # that bound says nothing about less
        built = replace(any_noise, total_noise=noise * factor)
        return _with_paper_clip(built) if self.bound == "paper" else built


def _with_paper_clip(mechanism: Mechanism) -> Mechanism:
    """The paper's clip as a plan has it: with Δ∞ = 1 in few coordinates there would be nothing to attack."""
    order = privacy_report(mechanism, bound="paper", cohort=_ALONE, rounds=1, delta=DELTA).order
    return mechanism.with_largest_linf(order or 2)


def settings() -> tuple[Setting, ...]:
    """The grid, fixed beforehand."""
    return tuple(_grid())


def _grid() -> Iterator[Setting]:
    for bound in ("rdp", "gdp"):
        # at 4 bits the Gaussian certificate proves nothing for ε = 3
        for bits in (4, 6, 8, 12) if bound == "rdp" else (6, 8, 12):
            for epsilon in (1.0, 3.0):
                for dimension in (1, 16, 128):
                    yield Setting("smm", bound, bits, epsilon, dimension, 1)
    for bits in (6, 8, 10):
        for epsilon in (1.0, 3.0):
            yield Setting("smm", "flat", bits, epsilon, 4096, 1)
    others = (("smm", "paper"), ("dgm", "rdp"), ("dgm", "gdp"), ("dgm", "paper"))
    for mechanism, bound in (*others, ("skellam", "gdp"), ("skellam", "paper"), ("ddg", "paper")):
        for bits in (8, 12):
            for epsilon in (1.0, 3.0):
                yield Setting(mechanism, bound, bits, epsilon, 16, 2)
    for bits in (12, 16):
        yield Setting("cpsgd", "composition", bits, 3.0, 4, 2)


@dataclass(frozen=True)
class Game:
    """A setting with what today's code claims for it, at δ = `DELTA` and its part of the study's error.

    trials: games in all, over both pairs.
    """

    setting: Setting
    mechanism: Mechanism
    claimed: float
    trials: int
    confidence: float

    def play(self) -> dict[str, Any]:
        """One row: the setting, its claim, and what the attack proves."""
        audited = audit_release(
            self.mechanism,
            delta=DELTA,
            bound=self.setting.bound,
            claimed=self.claimed,
            trials=self.trials // len(PAIRS),
            confidence=self.confidence,
        )
        left_out = ("mechanism", "bound", "bits")
        return asdict(self.setting) | {
            name: value for name, value in audited.to_dict().items() if name not in left_out
        }

    def was_played(self, row: Mapping[str, Any] | None) -> bool:
        """Whether a stored row belongs to exactly this game.

        Same δ, confidence and number of games, a lower bound that is a number >= 0, and a claim within
        `DRIFT` of today's. A claim that moved further, up or down, says that another mechanism or another
        bound was attacked. None, no row, was not played.
        """
        if row is None:
            return False
        claimed, proved = row.get("claimed"), row.get("lower_bound")
        if not isinstance(claimed, int | float) or not isinstance(proved, int | float):
            return False
        same = (row.get("delta"), row.get("confidence"), row.get("trials")) == (
            DELTA, self.confidence, self.trials,
        )  # fmt: skip
        return same and 0 <= proved < math.inf and abs(claimed - self.claimed) <= DRIFT * self.claimed

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether today's claim survives what the row's attack proved.

        What the row says of itself, and its own claim, do not count.
        """
        return bool(row["lower_bound"] <= self.claimed)


def game(setting: Setting) -> Game:
    """The setting's mechanism and claim, computed now."""
    mechanism = setting.build()
    report = privacy_report(mechanism, bound=setting.bound, cohort=_ALONE, rounds=1, delta=DELTA)
    each = min(_MOST_TRIALS, _COORDINATES // (setting.dimension * setting.shares))
    return Game(setting, mechanism, report.epsilon, each * len(PAIRS), 1 - ERROR / len(settings()))
