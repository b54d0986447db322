"""From a privacy target to a plan: request -> search over scales -> calibrated noise -> guarantee -> plan."""

from skelmix.planning.cohort import Cohort, PrivacyTarget
from skelmix.planning.planner import Plan, account, plan
from skelmix.planning.report import PrivacyReport

__all__ = ["Cohort", "Plan", "PrivacyReport", "PrivacyTarget", "account", "plan"]
