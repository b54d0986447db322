"""The failures that skelmix names.

One base class, so that a caller can catch everything that this package raises on purpose; each message
names what was wrong, the value that was seen and what to change.
"""


class SkelmixError(Exception):
    """Base class of every error that skelmix raises on purpose."""


class InvalidInput(SkelmixError, ValueError):
    """An argument is outside what the function accepts: wrong shape, dtype, range, NaN or infinity."""


class PrivacyUnattainable(SkelmixError):
    """No noise reaches the asked-for guarantee under the given constraints."""


class BitsTooFew(PrivacyUnattainable):
    """The modulus cannot carry the noise that privacy needs."""


class RoundFailed(SkelmixError):
    """A round ended without a sum (too few survivors). Nothing was revealed; its cost stays charged."""


class ProtocolError(SkelmixError):
    """A message of secure aggregation was refused. The state of the receiver did not change."""


class BudgetExhausted(SkelmixError):
    """The ledger holds as many rounds as the plan paid for: running another one would overspend."""


class CorruptState(SkelmixError):
    """A ledger, checkpoint or plan on disk is damaged, foreign or from another run."""


class StorageFailed(SkelmixError, OSError):
    """The disk is full or refuses: what was to be written is not there. Nothing was released."""


class PolicyViolation(SkelmixError):
    """A participant refuses what the server asked for, because its own policy forbids it."""


class DataUnavailable(SkelmixError):
    """A data set is not here and could not be fetched; the message says where to put it."""


class MissingExtra(SkelmixError, ImportError):
    """An optional dependency is not installed; the message gives the pip command."""
