"""A private sum over silos: each adds up its records exactly, then rounds and noises its sum once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput, RoundFailed
from skelmix.rounds.context import round_context
from skelmix.rounds.frames import without_frames

if TYPE_CHECKING:
    from skelmix.mechanisms import SiloSum
    from skelmix.planning import Plan
    from skelmix.rounds.security import Secure


class SilosRead:
    """The exact sum of each silo, read one after the other; counts silos and, when asked, keeps the truth."""

    def __init__(self, silos: Iterable[Any], plan: Plan, round: int, diagnostics: bool) -> None:
        self._silos, self._plan, self._round = silos, plan, round
        self.count, self.records, self.broken = 0, 0, 0
        self.total = np.zeros(plan.mechanism.dimension) if diagnostics else None

    def __iter__(self) -> Iterator[SiloSum]:
        limit = self._plan.cohort.uploads
        for records in self._silos:
            if self.count == limit:
                raise InvalidInput(
                    f"more than {limit} silos: the plan is for {limit}; make a plan for all of them. Nothing "
                    "was released"
                )
            silo = self._plan.mechanism.silo_sum(round=self._round)
            silo.add(_blocks(records, self.count))
            self.count += 1
            self.records += silo.records
            self.broken += silo.broken
            if self.total is not None:
                self.total += silo.clipped_sum()
            yield silo


def sum_over_silos(
    silos: Iterable[Any], plan: Plan, secure: Secure, *, round: int, diagnostics: bool
) -> tuple[NDArray[np.float64], SilosRead]:
    """The decoded sum of all silos' records, and what was read; see `private_sum`.

    Raises `RoundFailed`, having released nothing, when fewer silos come than the promised noise needs, and
    `InvalidInput` when no record of any silo is finite.
    """
    if plan.cohort.members != plan.cohort.divisor:
        raise InvalidInput(
            f"batch = {plan.cohort.divisor:g}: a sum takes every record, so nothing is gained by sampling; "
            f"plan with batch = records = {plan.cohort.members}"
        )
    if plan.cohort.unit != "record":
        raise InvalidInput(
            f"unit = {plan.cohort.unit!r}: rows are clipped one by one here, so a sum protects records; plan "
            "with unit='record', or add up an owner's rows first"
        )
    if getattr(silos, "ndim", 3) < 3:
        raise InvalidInput("silos: must be one (records, d) array per silo; put the arrays into a list")
    mechanism, roster = plan.mechanism, plan.cohort.roster
    shares = roster.encoding_shares(mechanism.total_noise, roster.expected)
    threshold = roster.min_survivors(roster.expected)
    sums = SilosRead(silos, plan, round, diagnostics)
    if secure == "protocol":
        from skelmix.secagg.in_memory import secure_sum

        total = secure_sum(
            (mechanism.encode_silo(silo, shares=shares) for silo in sums),
            modulus=1 << mechanism.bits,
            threshold=threshold,
            participants=roster.expected,
            colluding=roster.colluding,
            noise=plan.removable_noise,
            round=round,
            context=round_context(plan.digest(), round),
        )
    else:
        noisy = roster.expected if plan.removable_noise else None
        total = mechanism.encode_silos(sums, shares=shares, participants=noisy)
    if sums.count < threshold:
        raise RoundFailed(
            f"{sums.count} of {roster.expected} silos: at least {threshold} are needed for the promised "
            "noise; nothing was released. Raise the plan's dropout_tolerance or bring more silos"
        )
    if 0 < sums.records == sums.broken:
        raise InvalidInput(
            f"all {sums.records:,} records are NaN or infinite: nothing was released; check the data"
        )
    return mechanism.decode(total, round=round), sums


def _blocks(records: Any, silo: int) -> Any:
    """A silo's records, ready to be summed; a lone vector is refused, as it may mean a silo or a record."""
    if getattr(records, "ndim", 2) == 1:
        raise InvalidInput(
            f"silos[{silo}]: must be a (records, d) array or an iterable of such, got one vector; a silo "
            "with one record is an array of shape (1, d)"
        )
    return without_frames(records)
