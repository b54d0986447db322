"""From a privacy target to a plan: request -> search over scales -> calibrated noise -> guarantee -> plan."""

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.encoding.indicator import AdaptiveClip
    from skelmix.planning.cohort import Cohort
    from skelmix.planning.guarantee import privacy_report
    from skelmix.planning.planner import account, plan
    from skelmix.planning.plans import Plan
    from skelmix.planning.report import PrivacyReport
    from skelmix.planning.silos import Silos
    from skelmix.planning.target import PrivacyTarget

__all__ = [
    "AdaptiveClip",
    "Cohort",
    "Plan",
    "PrivacyReport",
    "PrivacyTarget",
    "Silos",
    "account",
    "plan",
    "privacy_report",
]

__getattr__ = lazily(
    __name__,
    {
        "request": ("AdaptiveClip",),
        "cohort": ("Cohort",),
        "plans": ("Plan",),
        "report": ("PrivacyReport",),
        "target": ("PrivacyTarget",),
        "silos": ("Silos",),
        "planner": ("account", "plan"),
        "guarantee": ("privacy_report",),
    },
)
