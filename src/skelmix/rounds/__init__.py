"""What every engine needs to run a plan round by round, without torch."""

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.rounds.ledger import Ledger
    from skelmix.rounds.spent import PrivacySpent
    from skelmix.rounds.summation import PrivateSum, private_sum

__all__ = ["Ledger", "PrivacySpent", "PrivateSum", "private_sum"]

__getattr__ = lazily(
    __name__,
    {"ledger": ("Ledger",), "spent": ("PrivacySpent",), "summation": ("PrivateSum", "private_sum")},
)
