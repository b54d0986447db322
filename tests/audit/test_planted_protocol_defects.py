"""Planted defects around the mechanism: a round that does not bind its plan, a ledger that is not locked."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from helpers.dishonest_server import DishonestServer, attack
from helpers.secure_rounds import cast
from skelmix.audit.release import audit_release
from skelmix.errors import CorruptState
from skelmix.mechanisms import SkellamMixture
from skelmix.planning import Cohort, privacy_report
from skelmix.rounds import ledger as ledger_module
from skelmix.rounds.context import round_context
from skelmix.rounds.ledger import Ledger
from skelmix.secagg import settings as rules
from skelmix.secagg.settings import Settings

DELTA = 1e-2
FIELDS = dict(dimension=16, bits=8, scale=8.0, clip_norm=1.0, total_noise=40.0, shares=4)


class TwoPlans(SkellamMixture):
    """The others encode under a plan of a coarser grid, whose noise is nothing on the target's."""

    def encode(self, vectors, **options):
        sent = super().encode(vectors, **options)
        others = len(sent) // self.shares  # where they begin
        coarse = SkellamMixture(
            self.dimension, self.bits, self.scale / 100, self.clip_norm, self.total_noise / 1e4, self.shares
        )
        sent[others:] = coarse.encode(np.asarray(vectors)[others:], **options)
        return sent


def opens_for(*plans):
    """Whether a dishonest server opens a sum of participants who hold these plans."""
    contexts = dict(enumerate((round_context(digest, 0) for digest in plans), start=10))
    settings = Settings(4, 8, len(plans), malicious=True, context=contexts[10])
    _, clients = cast(len(plans), settings)
    for p, client in clients.items():
        client._minimum_settings = replace(settings, context=contexts[p])
    vectors = {p: np.ones(4, np.uint8) for p in clients}
    server = DishonestServer(settings, session=b"s" * 16)
    shown = attack(server, clients, vectors, lambda p, request: replace(request, context=contexts[p]))
    return shown.total is not None


def test_a_plan_that_is_not_bound_to_the_round_is_caught(monkeypatch):
    """What two plans in one round do to the claim, and what keeps the real protocol from opening them."""
    fine, coarse = "a" * 64, "b" * 64
    assert opens_for(fine, fine, fine)
    assert not opens_for(fine, coarse, coarse)
    bound = rules.transcript
    monkeypatch.setattr(
        rules, "transcript", lambda settings, *rest: bound(replace(settings, context=b""), *rest)
    )
    assert opens_for(fine, coarse, coarse), "the defect: a transcript without the context"
    cohort = Cohort(1, 1, sampling="none")
    epsilon = privacy_report(
        SkellamMixture(**FIELDS), bound="rdp", cohort=cohort, rounds=1, delta=DELTA
    ).epsilon
    games = [
        audit_release(kind(**FIELDS), delta=DELTA, claimed=epsilon) for kind in (SkellamMixture, TwoPlans)
    ]
    assert [game.holds for game in games] == [True, False]


class NoLock:
    def __init__(self, *_, **__):
        pass

    def check(self):
        pass

    def close(self):
        pass


def test_a_ledger_without_a_lock_is_caught(tmp_path, monkeypatch):
    """Two servers that open one ledger: together they must not run more rounds than the plan pays for."""

    def rounds_of_two_servers(path):
        ledgers = []
        with suppress(CorruptState):
            for _ in range(2):
                ledgers.append(Ledger(path, plan_digest="a" * 64, budget=3))
        rounds = 0
        for ledger in ledgers:
            while ledger.remaining:
                ledger.charge(ledger.charged)
                rounds += 1
            ledger.close()
        return rounds

    assert rounds_of_two_servers(tmp_path / "sound.jsonl") == 3
    monkeypatch.setattr(ledger_module, "FileLock", NoLock)
    assert rounds_of_two_servers(tmp_path / "planted.jsonl") == 6
