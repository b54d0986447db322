"""Record-level privacy on Flower: what a silo's train function computes, and how the mod knows it.

Under a plan for `Silos` the mod opens a `SiloRound` for the time of the app's train function. `silo_update`
finds it, draws, clips and adds up the records, leaves the exact sum there and returns a receipt for the app's
reply. The mod exchanges the receipt for the sum. Anything else in the reply is no update: the mod then sends
what a silo without records would send, and says why in the node's own log.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from skelmix.errors import InvalidInput
from skelmix.flower.arrays import layout
from skelmix.mechanisms import Mechanism, SiloSum
from skelmix.noise.entropy import system_entropy
from skelmix.planning.silos import Silos
from skelmix.rounds.running_clip import JointVectors

log = logging.getLogger("flwr.skelmix")

_TOKEN_BYTES = 16


class SiloRound:
    """One silo in one round: it may add up its records once, and the sum may be taken once.

    The node has decided to take part before this exists, so no draw can change that decision.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        silos: Silos,
        *,
        digest: str,
        round: int,
        model: ArrayRecord,
        joint: JointVectors | None = None,
        question: str = "",
    ) -> None:
        self.question = question
        self.silos, self._model, self._joint = silos, model, joint
        self._mechanism, self._digest, self._round = mechanism, digest, round
        self._sum: SiloSum | None = mechanism.silo_sum(round=round)
        self._token = b""

    @contextmanager
    def opened(self) -> Iterator[SiloRound]:
        """Within the block, and in this thread only, `silo_update` works for this round."""
        before = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(before)

    def add_up(self, model: Any, loss: Any, records: Any, targets: Any, **options: Any) -> ConfigRecord:
        """Draw the records, add up their vectors and hand out the receipt; `InvalidInput` the second time."""
        from skelmix.federated.silo_update import PublicModel, add_drawn_records  # PyTorch: only here

        if self.question:
            raise InvalidInput("a question was asked, and silo_update trains: answer with file_update")
        add_drawn_records(
            self._claimed(),
            PublicModel(*layout(self._model)),
            model,
            loss,
            records,
            targets,
            rate=Fraction(self.silos.batch, self.silos.records),
            entropy=system_entropy(),
            joint=self._joint,
            **options,
        )
        return self._receipt()

    def add_file(self, path: Path) -> ConfigRecord:
        """Answer the question from a file and hand out the receipt; `InvalidInput` the second time.

        What is wrong with the file goes to the node's own log; one that cannot be used counts as empty.
        """
        from skelmix.statistics.asked import asked_from_text

        self._claimed()
        self._sum, notes = asked_from_text(self.question).sum_of_file(path, self._mechanism)
        for note in notes:
            log.error("%s (written to this node's log only)", note)
        return self._receipt()

    def _claimed(self) -> SiloSum:
        """The sum, for the one update of the round."""
        if self._sum is None or self._token:
            raise InvalidInput(
                "silo_update was called twice in a round: one draw of the records is one update"
            )
        self._token = system_entropy().bytes(_TOKEN_BYTES)
        return self._sum

    def _receipt(self) -> ConfigRecord:
        return ConfigRecord({"digest": self._digest, "round": self._round, "token": self._token})

    def redeem(self, content: RecordDict) -> SiloSum:
        """The sum for which the reply holds this round's receipt, else that of a silo without records.

        Never raises, whatever `content` holds.
        """
        total, self._sum = self._sum, None
        receipts = [record for record in content.config_records.values() if self._is_receipt(record)]
        if total is not None and len(receipts) == 1:
            return total
        log.error(
            "the app's reply is not what silo_update returned in this round: the update is replaced by that "
            "of a silo without records; reply with RecordDict({'update': silo_update(...)})"
        )
        return self._mechanism.silo_sum(round=self._round)

    def _is_receipt(self, record: ConfigRecord) -> bool:
        token = record.get("token")
        return (
            isinstance(token, bytes)
            and bool(self._token)
            and hmac.compare_digest(token, self._token)
            and (record.get("digest"), record.get("round")) == (self._digest, self._round)
        )


_current: ContextVar[SiloRound | None] = ContextVar("skelmix_silo_round", default=None)


def silo_update(
    model: Any,
    loss: Any,
    records: Any,
    targets: Any = None,
    *,
    owners: Any = None,
    learning_rate: float = 1.0,
) -> ConfigRecord:
    """This silo's update for the present round: put it into the reply, and nothing else.

    Call it in the app's train function, under a plan for `Silos`. It sets the PyTorch `model` to the weights
    that the server sent, draws each record independently at the plan's rate, computes each drawn record's
    gradient of `loss(outputs, targets)` alone, clips -learning_rate times it to the plan's clip norm, and
    adds up exactly. What it returns is a receipt without any data: the sum itself goes to the mod, which
    rounds and noises it.

    records, targets: CPU tensors with one record per row, or a map-style data set of pairs alone. owners: the
    person of each record, where the plan's unit is "owner".

    Records that fail, or that give NaN or infinity, count as zero. `InvalidInput` for wrong arguments, a
    second call in a round, or a call outside one.

    Example: `return Message(RecordDict({"update": silo_update(model, loss, x, y)}), reply_to=message)`.
    """
    present = _current.get()
    if present is None:
        raise InvalidInput(
            "silo_update was called outside a round for silos: call it in the train function of an app with "
            "skelmix_mod, in the thread that Flower calls, under a plan with cohort=Silos(...)"
        )
    if (owners is not None) != (present.silos.unit == "owner"):
        raise InvalidInput(
            f"owners: the plan's unit of privacy is one {present.silos.unit}; give owners for unit='owner', "
            "and for no other"
        )
    return present.add_up(model, loss, records, targets, owners=owners, learning_rate=learning_rate)


def file_update(path: Path) -> ConfigRecord:
    """This party's answer to the question of the present round, from its file: put it into the reply.

    Like `silo_update`, it returns a receipt without any data. `InvalidInput` outside a round with a question.
    """
    present = _current.get()
    if present is None or not present.question:
        raise InvalidInput("no question was asked in this round: file_update has nothing to answer")
    return present.add_file(path)
