"""One call from parties' files and a question to private answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.noise.entropy import system_entropy
from skelmix.planning.target import PrivacyTarget
from skelmix.rounds.context import round_context
from skelmix.statistics import arrow
from skelmix.statistics.answers import Answers
from skelmix.statistics.parsing import parse_question
from skelmix.statistics.party import Owners, PartySum, add_to_silo, party_sum
from skelmix.statistics.queries import Question
from skelmix.statistics.sizing import Parties, StatisticsPlan, plan_statistics
from skelmix.wording import counted

Notes = Callable[[Path, str], None]


def private_statistics(
    parties: Sequence[str | Path],
    question: Question | str,
    target: PrivacyTarget,
    *,
    records: int,
    owners: Owners | None = None,
    colluding: int = 0,
    level: float = 0.95,
    joint: bool = False,
) -> Answers:
    """Private answers to all queries from one file per party, under one ε; all in this process.

    parties: .csv or .parquet files, at least two, each read once (with owners: three times), streamed.
    question: a `Question`, or its text. records: about how many records there are in all, a public number
    and no fewer than there may be. owners, colluding, level, joint: see `Parties` and `StatisticsPlan`. Each
    call is a release of its own: two calls cost ε twice.

    A file that cannot be read counts as an empty party and does not raise, unless no file can be read;
    `release` can say why.

    Example: `private_statistics(["a.csv", "b.csv"], "count; mean(age, 0..110)", PrivacyTarget(1.0, 1e-6),
    records=10_000)`.
    """
    if isinstance(question, str):
        question = parse_question(question)
    group = Parties(len(parties), records, owners, colluding)
    return release(parties, plan_statistics(question, target, group, level=level, joint=joint))


def release(
    parties: Sequence[str | Path],
    planned: StatisticsPlan,
    *,
    notes: Notes | None = None,
    read: Callable[[Path], Any] = lambda path: None,
) -> Answers:
    """The planned answers, from one file per party; each call is a release of its own.

    notes: called with a file and a line about it that could not be used, or why the party counts as empty;
    such lines are for the party that owns the file, never for others. read: called after each file. Where no
    file can be used nothing is released, and `InvalidInput` is for whoever holds all of them.

    Example: `release(["north.csv", "south.csv"], planned)`.
    """
    arrow.pyarrow()
    files = _checked(parties, planned)

    usable = 0

    def sums() -> Iterator[PartySum]:
        nonlocal usable
        for path in files:
            party = party_sum(path, planned.layout, planned.radius, planned.parties.owners)
            usable += party.usable
            for line in party.private_notes:
                if notes is not None:
                    notes(path, line)
            read(path)
            yield party

    total = noisy_total(sums(), planned)
    if not usable:
        owners = planned.parties.owners
        names = [*planned.layout.question.columns, *([owners.column] if owners else [])]
        columns = ", ".join(dict.fromkeys(names)) or "one line per record"
        raise InvalidInput(
            f"none of {counted(len(files), 'file')} can be used, so the answers would be noise; nothing was "
            f"released. Check that each is a table with {columns}"
        )
    return answers_from(total, planned)


def _checked(parties: Sequence[str | Path], planned: StatisticsPlan) -> list[Path]:
    files = [Path(path) for path in parties]
    if len(files) != planned.parties.count:
        raise InvalidInput(
            f"parties: {len(files)} files for a plan of {planned.parties.count}; give one each"
        )
    if len({path.resolve() for path in files}) < len(files):
        raise InvalidInput("parties: a file is given twice, and its records would count twice; give it once")
    return files


def encode_party(party: PartySum, planned: StatisticsPlan) -> NDArray[Any]:
    """A party's message: its exact sum, rounded and noised once, (coordinates,) integers modulo 2^bits.

    Guarantee: everyone's messages together, added modulo 2^bits, have the plan's ε for one record or owner.
    A second message from the same records would be a second release.
    """
    mechanism, roster = planned.mechanism, planned.plan.cohort.roster
    silo = mechanism.silo_sum(round=0)
    add_to_silo(silo, party)
    shares = roster.encoding_shares(mechanism.total_noise, roster.expected)
    return mechanism.encode_silo(silo, shares=shares)


def noisy_total(sums: Iterator[PartySum], planned: StatisticsPlan) -> NDArray[np.float64]:
    """The parties' sums, noised, added by secure aggregation in this process, and decoded."""
    from skelmix.secagg.in_memory import secure_sum

    mechanism, roster = planned.mechanism, planned.plan.cohort.roster
    run = system_entropy().bytes(16).hex()
    total = secure_sum(
        (encode_party(party, planned) for party in sums),
        modulus=mechanism.modulus,
        threshold=roster.min_survivors(roster.expected),
        participants=roster.expected,
        colluding=roster.colluding,
        noise=planned.plan.removable_noise,
        round=0,
        context=round_context(planned.plan.digest(), 0, run),
    )
    decoded: NDArray[np.float64] = mechanism.decode(total, round=0)
    return decoded


def answers_from(decoded: NDArray[np.float64], planned: StatisticsPlan) -> Answers:
    """The answers from the decoded noisy sum: post-processing, which costs no privacy."""
    report = planned.plan.report
    entries = decoded[: planned.layout.dimension]
    estimates = planned.estimator.answers(entries * planned.decoded_unit)
    return Answers(report.epsilon, report.delta, planned.plan.cohort.unit, estimates, planned.level)
