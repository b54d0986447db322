"""A network that delivers anything to anyone at any time. `SKELMIX_FUZZ_STEPS=1000000` for the long run.

At each step a random message of this round or an earlier one, whole or damaged, goes to a random client or to
the server, or a message is lost, or the server closes a phase, or a client dies and comes back from its
stored state. Whatever happens: only named errors, no change after a refusal, never both shares of a peer,
never a share of noise that its owner keeps, one set of survivors per round, and a sum that comes out is the
survivors'. (Damage under a right checksum is for the malicious model only.)
"""

import os
import random

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.secure_rounds import cast
from skelmix.accounting.openings import NoisePieces
from skelmix.errors import ProtocolError, RoundFailed
from skelmix.secagg import messages
from skelmix.secagg.client import Client
from skelmix.secagg.settings import Phase, Settings
from skelmix.secagg.stored import Round

STEPS = int(os.environ.get("SKELMIX_FUZZ_STEPS", "6000"))
PHASES = ("share", "masked", "consistency", "unmask")
NOISE = 2.0**-40  # pieces of noise are shared, revealed and removed; that one is not zero has odds of 10^-7


class Net:
    def __init__(self, chance: random.Random, archive: list[bytes], round: int) -> None:
        self.chance = chance
        self.malicious = chance.random() < 0.4
        n = chance.randint(2, 5)
        threshold = chance.randint(n // 2 + 1, n)
        colluding, noise = 0 if self.malicious else chance.randint(0, 1), chance.choice((0.0, NOISE))
        rules = Settings(2, 5, max(2, threshold), colluding, self.malicious, noise=noise)
        self.server, self.clients = cast(n, rules, round=round)
        self.vectors = {p: np.array([p % 32, chance.randrange(32)]) for p in self.clients}
        self.pool = archive  # every message ever sent, of all rounds
        self.inbox: list[tuple[int, str, bytes]] = []
        self.outbox: list[tuple[str, bytes]] = [("advertise", c.advertise()) for c in self.clients.values()]
        self.revealed: dict[tuple[int, int], set[str]] = {}
        self.unmasked_for: set[bytes] = set()
        self.total: np.ndarray | None = None

    def over(self) -> bool:
        return self.server.phase in (Phase.DONE, Phase.FAILED)

    def damage(self, data: bytes) -> bytes:
        kind = self.chance.random()
        if kind < 0.65 or not data:
            return data
        if kind < 0.75:
            return data[: self.chance.randrange(len(data))]
        changed = bytearray(data)
        changed[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
        body = bytes(changed[: -messages.CHECKSUM_BYTES])
        forged = kind > 0.83 and self.malicious
        return body + messages._checksum(body) if forged else bytes(changed)

    def answer(self, p: int, phase: str, data: bytes) -> None:
        client = self.clients[p]
        before, state = client.secret_state(), client._round
        try:
            extra = {}
            if phase == "masked":
                joined = client._round.request.participants if client._round else 0
                extra = {"vector": self.vectors[p], "participants": joined}
            reply = getattr(client, phase)(data, **extra)
        except ProtocolError:
            assert client.secret_state() == before
            return
        self.outbox.append((phase, reply))
        self.pool.append(reply)
        if phase == "unmask":
            message = messages.decode(reply, messages.UnmaskShares, 10**5)
            for kind, rows in (("seed", message.seed_shares), ("key", message.key_shares)):
                for peer, _ in rows:
                    self.revealed.setdefault((p, peer), set()).add(kind)
            self.compare(state, messages.decode(data, messages.UnmaskRequest, 10**5).survivors, message)

    def compare(self, state: Round, survivors: bytes, answer: messages.UnmaskShares) -> None:
        """The answer opens each survivor's seed, and of its pieces those beyond what it keeps: no others."""
        self.unmasked_for.add(survivors)
        request, alive = state.request, int.from_bytes(survivors, "little")
        division = NoisePieces(request.participants, request.threshold, 32 if request.colluding else 1)
        for peer, row in answer.seed_shares:
            held = state.own_shares if peer == request.index else state.held[peer]
            seed, _, *pieces = (held[at : at + 16] for at in range(0, len(held), 16))
            before = (alive & ((1 << peer) - 1)).bit_count()
            extra = division.kept(alive.bit_count(), before) - division.base
            assert row == seed + b"".join(piece for i, piece in enumerate(pieces) if not extra >> i & 1)

    def look(self) -> tuple[object, ...]:
        """All that a refusal must leave as it was."""
        server = self.server
        tables = (server._advertised, server._shares, server._survivors, server._agreements, server._revealed)
        return server.phase, *(table.copy() for table in (*tables, server._keys)), server._total.tolist()

    def deliver(self, phase: str, data: bytes) -> None:
        before = self.look()
        try:
            getattr(self.server, phase)(data)
        except ProtocolError:
            assert self.look() == before

    def close(self) -> None:
        phase = self.server.phase.value
        result = getattr(self.server, f"close_{phase}")()
        if phase == "unmask":
            self.total = result
            return
        following = self.server.phase.value
        self.inbox = [(p, following, data) for p, data in result.items() if p in self.clients]
        self.pool.extend(result.values())

    def pop_request(self, choice: int) -> None:
        if self.inbox:
            self.answer(*self.inbox.pop(choice % len(self.inbox)))

    def pop_answer(self, choice: int) -> None:
        if self.outbox:
            self.deliver(*self.outbox.pop(choice % len(self.outbox)))

    def lose(self, choice: int) -> None:
        """A request or an answer never arrives: its participant has dropped out."""
        queue = self.inbox if choice % 2 else self.outbox
        if queue:
            queue.pop(choice // 2 % len(queue))

    def restart(self, p: int) -> None:
        old = self.clients[p]
        kept = {
            name: getattr(old, f"_{name}")
            for name in ("identity", "trusted", "joined_rounds", "minimum_settings")
        }
        fresh = Client(p, old._channel, **kept)
        fresh.restore(old.secret_state())
        self.clients[p] = fresh

    def step(self) -> None:
        chance = self.chance
        roll = chance.random()
        if roll < 0.35 and self.inbox:  # the network does its work
            self.pop_request(chance.randrange(len(self.inbox)))
        elif roll < 0.65 and self.outbox:
            self.pop_answer(chance.randrange(len(self.outbox)))
        elif roll < 0.72 and not self.inbox and not self.outbox:
            self.close()
        elif 0.72 <= roll < 0.723:
            self.close()  # too early
        elif 0.723 <= roll < 0.74:
            self.lose(chance.randrange(20))
        elif roll < 0.78:
            self.restart(chance.choice(list(self.clients)))
        elif self.pool and roll < 0.87:
            data = self.damage(chance.choice(self.pool))
            self.answer(chance.choice(list(self.clients)), chance.choice(PHASES), data)
        elif self.outbox and roll < 0.95:  # in its own phase, so that damage gets past the first checks
            phase, data = chance.choice(self.outbox)
            self.deliver(phase, self.damage(data))
        elif self.pool:
            data = self.damage(chance.choice(self.pool))
            self.deliver(chance.choice(("advertise", *PHASES)), data)

    def check(self) -> None:
        assert all(len(kinds) == 1 for kinds in self.revealed.values())
        assert len(self.unmasked_for) <= 1
        if self.total is not None:
            assert len(self.server.survivors) >= self.server.settings.threshold
            expected = sum(self.vectors[p] for p in self.server.survivors) % 32
            assert (self.total == expected).all()


class AnyOrder(RuleBasedStateMachine):
    """The same network with hypothesis choosing, so that a failure comes with its shortest history."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.net = Net(random.Random(seed), [], round=0)

    @precondition(lambda self: self.net.inbox)
    @rule(choice=st.integers(0, 9))
    def client_answers(self, choice: int) -> None:
        self.net.pop_request(choice)

    @precondition(lambda self: self.net.outbox)
    @rule(choice=st.integers(0, 9))
    def server_accepts(self, choice: int) -> None:
        self.net.pop_answer(choice)

    @precondition(lambda self: not self.net.over() and not (self.net.inbox or self.net.outbox))
    @rule()
    def phase_ends(self) -> None:
        try:
            self.net.close()
        except RoundFailed:
            assert self.net.server.phase is Phase.FAILED

    @rule(choice=st.integers(0, 19))
    def a_message_is_lost(self, choice: int) -> None:
        self.net.lose(choice)

    @rule(p=st.integers(0, 9))
    def client_restarts(self, p: int) -> None:
        self.net.restart(10 + p % len(self.net.clients))

    @precondition(lambda self: self.net.outbox)
    @rule(choice=st.integers(0, 9))
    def an_answer_arrives_damaged_or_early(self, choice: int) -> None:
        phase, data = self.net.outbox[choice % len(self.net.outbox)]
        self.net.deliver(phase, self.net.damage(data))

    @precondition(lambda self: self.net.pool)
    @rule(p=st.integers(0, 9), phase=st.sampled_from(PHASES), choice=st.integers(0, 99))
    def client_gets_anything(self, p: int, phase: str, choice: int) -> None:
        data = self.net.damage(self.net.pool[choice % len(self.net.pool)])
        self.net.answer(10 + p % len(self.net.clients), phase, data)

    @precondition(lambda self: self.net.pool)
    @rule(phase=st.sampled_from(("advertise", *PHASES)), choice=st.integers(0, 99))
    def server_gets_anything(self, phase: str, choice: int) -> None:
        self.net.deliver(phase, self.net.damage(self.net.pool[choice % len(self.net.pool)]))

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "net"):
            self.net.check()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=80, deadline=None)


def test_nothing_delivered_in_any_order_breaks_a_promise():
    seed = int(os.environ.get("SKELMIX_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    print(f"SKELMIX_FUZZ_SEED={seed}")
    chance = random.Random(seed)
    archive: list[bytes] = []
    steps, rounds, sums = 0, 0, 0
    while steps < STEPS:
        net = Net(chance, archive, round=rounds)
        rounds += 1
        try:
            while not net.over() and steps < STEPS:
                net.step()
                steps += 1
        except RoundFailed:
            assert net.server.phase is Phase.FAILED
        net.check()
        sums += net.total is not None
        del archive[: max(0, len(archive) - 200)]
    print(f"{steps} steps, {rounds} rounds, {sums} sums")
    assert sums >= rounds // 5  # the run must reach the end often enough to mean something
