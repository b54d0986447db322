"""What every engine needs to run a plan round by round, without torch."""

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.rounds.ledger import Ledger
    from skelmix.rounds.summation import PrivateSum, private_sum

__all__ = ["Ledger", "PrivateSum", "private_sum"]

__getattr__ = lazily(__name__, {"Ledger": "ledger", "PrivateSum": "summation", "private_sum": "summation"})
