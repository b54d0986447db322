"""Distributed differential privacy for federated learning and federated sums.

Names are loaded on first use, so that `import skelmix` stays light: neither numba, scipy nor torch comes
with it.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "plan": "skelmix.planning.planner",
    "Plan": "skelmix.planning.planner",
    "PrivacyTarget": "skelmix.planning.planner",
    "Cohort": "skelmix.planning.planner",
    "private_sum": "skelmix.rounds.summation",
}
__all__ = ["Cohort", "Plan", "PrivacyTarget", "__version__", "plan", "private_sum"]

if TYPE_CHECKING:
    from skelmix.planning.planner import Cohort, Plan, PrivacyTarget, plan
    from skelmix.rounds.summation import private_sum


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'skelmix' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
