"""Record-level privacy on Flower: what a silo's train function computes, and how the mod gets it.

Under a plan for `Silos` the mod opens a `SiloRound` for the time of the app's train function. `silo_update`
finds it, draws, clips and adds up the records, and leaves the exact sum there for the mod. Nothing in the
app's reply is an update. An app that did not call `silo_update` is a silo without records; once
`silo_update` has returned, its sum is sent, whatever the app does next. For an app may fail because of one
record (a loss that it logs is NaN), and a silo that then dropped its sum would reveal all other records, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord

from skelmix.errors import InvalidInput
from skelmix.flower.arrays import layout
from skelmix.mechanisms import Mechanism, SiloSum
from skelmix.noise.entropy import system_entropy
from skelmix.planning.silos import Silos
from skelmix.rounds.running_clip import JointVectors

log = logging.getLogger("flwr.skelmix")


class SiloRound:
    """One silo in one round: it may add up its records once, and the sum may be taken once.

    The node has decided to take part before this exists, so no draw can change that decision.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        silos: Silos,
        *,
        round: int,
        model: ArrayRecord,
        joint: JointVectors | None = None,
        question: str = "",
    ) -> None:
        self.question = question
        self.silos, self._model, self._joint = silos, model, joint
        self._mechanism, self._round = mechanism, round
        self._claimed = False
        self._finished: SiloSum | None = None

    @contextmanager
    def opened(self) -> Iterator[SiloRound]:
        """Within the block, and in this thread only, `silo_update` works for this round."""
        before = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(before)

    def add_up(self, model: Any, loss: Any, records: Any, targets: Any, **options: Any) -> ConfigRecord:
        """Draw the records and add up their vectors; `InvalidInput` the second time."""
        from skelmix.federated.silo_update import PublicModel, add_drawn_records  # PyTorch: only here

        if self.question:
            raise InvalidInput("a question was asked, and silo_update trains: answer with file_update")
        total = self._claim()
        add_drawn_records(
            total,
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
        broken = total.broken if self._joint is None else self._joint.broken
        if 0 < total.records == broken:
            log.error(
                "all %d records that were drawn add zero, being unusable, NaN or infinite: this silo sends "
                "noise alone; check the records and the loss (written to this node's log only)",
                broken,
            )
        return self._finish(total)

    def add_file(self, path: Path) -> ConfigRecord:
        """Answer the question from a file; `InvalidInput` the second time.

        What is wrong with the file goes to the node's own log; one that cannot be used counts as empty.
        """
        from skelmix.statistics.asked import asked_from_text

        self._claim()
        total, notes = asked_from_text(self.question).sum_of_file(path, self._mechanism)
        for note in notes:
            log.error("%s (written to this node's log only)", note)
        return self._finish(total)

    def _claim(self) -> SiloSum:
        """A sum to be filled: the only one of the round."""
        if self._claimed:
            raise InvalidInput(
                "silo_update was called twice in a round: one draw of the records is one update"
            )
        self._claimed = True
        return self._mechanism.silo_sum(round=self._round)

    def _finish(self, total: SiloSum) -> ConfigRecord:
        self._finished = total
        return ConfigRecord({"round": self._round})

    def taken(self) -> SiloSum:
        """The sum that was finished, else that of a silo without records; after this none is accepted."""
        self._claimed = True
        if self._finished is not None:
            return self._finished
        log.error(
            "the app finished no call of silo_update in this round: what is sent is the update of a silo "
            "without records; reply with RecordDict({'update': silo_update(...)})"
        )
        return self._mechanism.silo_sum(round=self._round)


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
    adds up exactly. What it returns holds no data: the sum itself goes to the mod, which rounds and noises
    it. Once this has returned, the sum is sent, whatever the app does or replies afterwards.

    records, targets: CPU tensors with one record per row, or a map-style data set alone, of (input, target)
    pairs or of mappings with these two values (as Hugging Face's data sets have). owners: the person of each
    record, where the plan's unit is "owner".

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

    Like `silo_update`, it returns a record without any data. `InvalidInput` outside a round with a question.
    """
    present = _current.get()
    if present is None or not present.question:
        raise InvalidInput("no question was asked in this round: file_update has nothing to answer")
    return present.add_file(path)
