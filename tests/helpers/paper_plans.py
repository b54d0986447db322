"""Plans of the paper's MNIST job."""

from typing import Any

import skelmix as sk

TARGET = sk.PrivacyTarget(epsilon=3.0, delta=1e-5)
PAPER = sk.Cohort(expected=240, population=60_000)


def paper_plan(target: sk.PrivacyTarget = TARGET, **changed: Any) -> sk.Plan:
    """The plan of the paper's job, or of one that differs in some settings."""
    settings: dict[str, Any] = (
        dict(dimension=63_610, clip_norm=1.0, bits=8, rounds=1000, cohort=PAPER) | changed
    )
    return sk.plan(target, **settings)
