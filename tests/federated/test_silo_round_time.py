"""A round over silos costs no more than one of as many participants: it rounds and noises less."""

import time

import pytest
import torch
from torch.nn.functional import cross_entropy

import skelmix as sk
from skelmix.datasets.partition import equal_shares
from skelmix.federated import Clients, SiloClients, Trainer
from skelmix.federated.recipes import mlp

RECORDS, BATCH, SILOS = 2_400, 240, 10
NOISE = 360.0  # this, and what follows, as in the study of silos
JOB = {"delta": 1e-5, "dimension": 63_610, "bits": 8, "rounds": 99, "scale": 42.2}


@pytest.mark.no_cover  # counting lines slows the one whose code has more of them
@pytest.mark.parametrize("bound", ["flat", "rdp"])  # each record is rotated, or each silo's sum
def test_a_round_takes_no_longer_than_one_of_participants(bound):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(RECORDS, 784, generator=generator)
    targets = torch.randint(0, 10, (RECORDS,), generator=generator)

    def trainer(cohort, noise, held):
        model = mlp()
        plan = sk.account(noise=noise, cohort=cohort, bound=bound, **JOB)
        return Trainer(model, cross_entropy, held, plan, torch.optim.Adam(model.parameters(), lr=1e-5))

    both = (
        trainer(
            sk.Silos(SILOS, RECORDS, BATCH),
            NOISE / SILOS,
            SiloClients.split(inputs, targets, equal_shares(RECORDS, RECORDS // SILOS)),
        ),
        trainer(sk.Cohort(BATCH, RECORDS), NOISE / BATCH, Clients(inputs, targets)),
    )
    seconds = [[], []]
    for _ in range(16):
        for of_one, training in zip(seconds, both, strict=True):
            start = time.process_time()
            training.step()
            of_one.append(time.process_time() - start)
    silos, participants = map(min, seconds)
    assert silos <= participants, f"{1e3 * silos:.0f} ms, participants {1e3 * participants:.0f} ms"
