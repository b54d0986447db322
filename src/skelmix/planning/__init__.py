"""From a privacy target to a plan: request -> search over scales -> calibrated noise -> guarantee -> plan."""

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.planning.cohort import Cohort, PrivacyTarget
    from skelmix.planning.guarantee import privacy_report
    from skelmix.planning.planner import account, plan
    from skelmix.planning.plans import Plan
    from skelmix.planning.report import PrivacyReport

__all__ = ["Cohort", "Plan", "PrivacyReport", "PrivacyTarget", "account", "plan", "privacy_report"]

__getattr__ = lazily(
    __name__,
    {
        "Cohort": "cohort",
        "Plan": "plans",
        "PrivacyReport": "report",
        "PrivacyTarget": "cohort",
        "account": "planner",
        "plan": "planner",
        "privacy_report": "guarantee",
    },
)
