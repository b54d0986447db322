"""What a node remembers between two messages of a run, in Flower's `context.state`: it never leaves the node.

The run's channel key and plan stay for the whole run; the secrets of a round are replaced after every phase
and erased when the round is over. They are held by the SuperNode process, in memory. Which plan was accepted
and which rounds were answered is on the node's disk too (`ContributionStore`): a SuperNode that restarts
within a run goes on with later rounds, and repeats none. Nor can two messages that Flower hands out at the
same time, each with its own copy of the state, repeat a round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, RecordDict

from skelmix.encoding.indicator import AdaptiveClip
from skelmix.errors import CorruptState, InvalidInput
from skelmix.flower.records import CONSISTENCY, RECORD
from skelmix.planning import Cohort
from skelmix.planning.digest import json_digest
from skelmix.planning.silos import Silos, contributors_from_dict
from skelmix.rounds.contributions import ContributionStore, default_directory
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.keys import KeyPair
from skelmix.validation import whole

if TYPE_CHECKING:
    from skelmix.rounds.running_clip import JointVectors

_JOINED = "attendance"  # the stored name, which a state written by an older version has, too


@dataclass(frozen=True)
class PlanFacts:
    """What a round needs of a plan whose claim was proved earlier in the run."""

    cohort: Cohort  # who uploads; in a plan for silos, all of them
    fewest: int  # participants that must start a round
    silos: Silos | None
    rounds: int
    words: int  # length of a vector on the wire
    bits: int
    dimension: int  # length of the app's own update
    fields: dict[str, Any]
    adaptive_clip: AdaptiveClip | None = None

    @property
    def removable_noise(self) -> float:
        """`Plan.removable_noise`."""
        if self.cohort.least_survivors is None:
            return 0.0
        return self.cohort.noise_in_sum(self.fields["total_noise"])

    def mechanism(self) -> Any:
        """Load the kernels, only where something is encoded."""
        from skelmix.mechanisms import mechanism_from_dict

        return mechanism_from_dict(self.fields)

    def joint(self, clip_norm: float) -> JointVectors | None:
        """What makes this round's joint vectors; None where the plan's clip is fixed."""
        from skelmix.rounds.running_clip import JointVectors

        return None if self.adaptive_clip is None else JointVectors(self.adaptive_clip, clip_norm)


def _damaged(name: str) -> CorruptState:
    return CorruptState(f"the node's stored {name} is damaged: restart the run")


def contribution_store(node_config: Mapping[str, Any], run: int) -> ContributionStore:
    """The directory in which the node keeps what it has given to a run.

    It is `skelmix-state` of its node-config, else one named after the rest of it, which a restart does not
    change, unlike the node's number.
    """
    if directory := node_config.get("skelmix-state"):
        return ContributionStore(Path(str(directory)), run)
    own = {name: value for name, value in node_config.items() if not name.startswith("skelmix-")}
    return ContributionStore(default_directory(json_digest("node", own)[:16]), run)


class NodeState:
    """A typed view of one `ConfigRecord` in a node's state; every change is written through at once.

    Reading what is not of the right kind raises `CorruptState`.
    """

    def __init__(self, state: RecordDict, store: ContributionStore) -> None:
        self._store = store
        if RECORD not in state.config_records:
            state[RECORD] = ConfigRecord()
        self._record = state.config_records[RECORD]

    def _get(self, name: str, kind: type[Any], default: Any) -> Any:
        value = self._record.get(name, default)
        if type(value) is not kind:
            raise _damaged(name)
        return value

    @property
    def plan_digest(self) -> str:
        """The digest of the plan accepted in this run; empty before."""
        return str(self._get("digest", str, ""))

    @property
    def last_round(self) -> int:
        """The last round for which a vector was made, before or after a restart; -1 before the first."""
        return max(int(self._get("last-round", int, -1)), self._store.read().last_round)

    @property
    def secrets(self) -> bytes:
        """The open round's secrets; empty when there is none."""
        return bytes(self._get("secrets", bytes, b""))

    @property
    def open_round(self) -> tuple[int, int]:
        """The open round's number and its participants, as counted when it was joined."""
        return int(self._get("open-round", int, -1)), int(self._get("cohort-size", int, 0))

    @property
    def clip_norm(self) -> float:
        """The open round's clip norm, where the plan's clip is adaptive; else 0."""
        return float(self._get("clip-norm", float, 0.0))

    def channel(self) -> KeyPair:
        """The run's long-lived key, made on first use."""
        secret = self._get("channel", bytes, b"")
        if secret:
            try:
                return KeyPair(secret)
            except InvalidInput as error:
                raise _damaged("channel") from error
        pair = KeyPair.generate()
        self._record["channel"] = pair.secret_bytes()
        return pair

    def joined_rounds(self) -> JoinedRounds:
        """The rounds that were joined under the channel key."""
        data = self._get(_JOINED, bytes, b"")
        return JoinedRounds.from_bytes(data) if data else JoinedRounds()

    @property
    def question(self) -> str:
        """What the accepted plan is to answer; empty in training."""
        return str(self._get("question", str, ""))

    def keep_plan(self, text: str, digest: str, words: int, fewest: int, question: str = "") -> None:
        """Accept a plan, for a question or for training; only after its claim was proved and policies agreed.

        `PolicyViolation` if the node had another plan in this run, before a restart.
        """
        self._store.accept(digest)
        self._record["plan"], self._record["digest"] = text, digest
        self._record["words"], self._record["fewest"] = words, fewest
        if question:
            self._record["question"] = question

    def plan_facts(self) -> PlanFacts:
        """The accepted plan, without proving it again: the text is the one that was proved."""
        try:
            data = json.loads(self._get("plan", str, ""))
            fields = data["mechanism"]
            whole(1, rounds=data["rounds"], bits=fields["bits"], dimension=fields["dimension"])
            contributors = contributors_from_dict(data["cohort"])
            adaptive = AdaptiveClip(**data["adaptive_clip"]) if "adaptive_clip" in data else None
            return PlanFacts(
                cohort=contributors.roster,
                fewest=self._get("fewest", int, contributors.uploads),
                silos=contributors if isinstance(contributors, Silos) else None,
                rounds=data["rounds"],
                words=self._get("words", int, 0),
                bits=fields["bits"],
                dimension=fields["dimension"] - (adaptive is not None),
                fields=fields,
                adaptive_clip=adaptive,
            )
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _damaged("plan") from error

    def plan_cost(self) -> tuple[float, float]:
        """ε and δ of the accepted plan, as they were proved."""
        try:
            data = json.loads(self._get("plan", str, ""))
            return float(data["epsilon"]), float(data["target"]["delta"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _damaged("plan") from error

    def spend(self, round_number: int) -> int:
        """Record that from now on no vector is made for this round or an earlier one.

        Returns how many rounds of the run were spent, before or after a restart, this one included.
        """
        if round_number <= self.last_round:
            raise CorruptState(f"round {round_number} was already spent")
        known = int(self._get("spent-rounds", int, 0)) + 1  # in case the file on disk was lost
        count = max(known, self._store.spend(round_number))
        self._record["last-round"], self._record["spent-rounds"] = round_number, count
        return count

    def claim(self, phase: str) -> None:
        """Record that this node signs the open round's survivors, or unmasks for them; once per phase.

        Only the disk can tell: a message that is handled at the same time has its own copy of this state.
        """
        self._store.claim("signed" if phase == CONSISTENCY else "unmasked", self.open_round[0])

    def join(
        self, round_number: int, size: int, joined_rounds: JoinedRounds, clip_norm: float | None = None
    ) -> None:
        """Record that a round of this number, size and clip norm was joined; `keep` its secrets next."""
        self._record[_JOINED] = joined_rounds.to_bytes()
        self._record["clip-norm"] = clip_norm or 0.0
        self.reopen(round_number, size)

    def reopen(self, round_number: int, size: int) -> None:
        self._record["open-round"], self._record["cohort-size"] = round_number, size

    def keep(self, secret_state: bytes) -> None:
        """Store the open round's secrets, in place of those of the phase before."""
        self._record["secrets"] = secret_state

    def erase(self) -> None:
        """Forget the open round."""
        for name in ("secrets", "open-round", "cohort-size", "clip-norm"):
            self._record.pop(name, None)
