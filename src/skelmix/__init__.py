"""Distributed differential privacy for federated learning, federated sums and federated statistics.

Names are loaded on first use, so that `import skelmix` stays light: neither numba, scipy nor torch comes
with it.
"""

from typing import TYPE_CHECKING

from skelmix.exports import lazily

__version__ = "0.1.0"

if TYPE_CHECKING:
    from skelmix.planning import AdaptiveClip, Cohort, Plan, PrivacyTarget, Silos, account, plan
    from skelmix.rounds import private_sum

__all__ = [
    "AdaptiveClip",
    "Cohort",
    "Plan",
    "PrivacyTarget",
    "Silos",
    "__version__",
    "account",
    "plan",
    "private_sum",
]

__getattr__ = lazily(
    __name__,
    {
        "planning": ("AdaptiveClip", "Cohort", "Plan", "PrivacyTarget", "Silos", "account", "plan"),
        "rounds": ("private_sum",),
    },
)


def __dir__() -> list[str]:
    return __all__
