"""Why a message was refused: one class per reason, all of them `ProtocolError`.

Whoever raises one of these has changed nothing: the next well-formed message is treated as if the refused one
had never come.
"""

from skelmix.errors import ProtocolError


class MalformedMessage(ProtocolError):
    """Truncated, oversized, damaged, of another version, or with a field outside its limits."""


class OutOfOrder(ProtocolError):
    """A well-formed message, in a phase that does not accept it."""


class DuplicateMessage(ProtocolError):
    """The sender has already answered in this phase."""


class UnknownSender(ProtocolError):
    """The sender is not part of this round, or has dropped out of it."""


class WrongRound(ProtocolError):
    """A message of another session or another round: a replay, or a mix-up."""


class NotAuthentic(ProtocolError):
    """A signature or an authentication tag does not verify."""


class UnsafeRequest(ProtocolError):
    """Answering would break the threat model's promise: too few survivors, two views, a weak threshold."""
