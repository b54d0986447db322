"""Data of which nothing can be learned is no success; what a run leaves for others does not show it."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import skelmix as sk
from skelmix.errors import InvalidInput, RoundFailed
from skelmix.federated import Clients, SiloClients, Trainer, checkpoint

PEOPLE, ROUNDS = 12, 2


class NoNumberUnlessZero(nn.Module):
    """Lets the rehearsal on zeros pass, and breaks on every record that holds anything else."""

    def forward(self, inputs):
        return torch.where(inputs == 0, inputs, torch.nan)


def network():
    return nn.Sequential(NoNumberUnlessZero(), nn.Linear(3, 2))


def plan_for(kind):
    cohort = sk.Silos(3, PEOPLE, PEOPLE) if "silos" in kind else sk.Cohort.everyone(PEOPLE)
    clip = "adaptive" if "adaptive" in kind else "fixed"
    return sk.plan(
        sk.PrivacyTarget(50.0, 1e-3), dimension=8, bits=20, rounds=ROUNDS, bound="gdp", cohort=cohort,
        clip=clip,
    )  # fmt: skip


def holders(kind, inputs):
    targets = torch.arange(PEOPLE) % 2
    if "silos" not in kind:
        return Clients(inputs, targets)
    return SiloClients.of(list(zip(inputs.split(4), targets.split(4), strict=True)))


def trainer(kind, inputs, plan=None, **options):
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Trainer(model, cross_entropy, holders(kind, inputs), plan or plan_for(kind), optimizer, **options)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["people", "silos"])
def test_records_none_of_which_is_finite_are_refused_before_anything_is_charged(tmp_path, kind, broken):
    inputs = torch.full((PEOPLE, 3), broken)
    with pytest.raises(InvalidInput, match=r"all 12 records hold NaN or infinity.*Nothing was charged"):
        trainer(kind, inputs, run_directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    inputs[-1] = 0.0
    trainer(kind, inputs, run_directory=tmp_path / "run").close()


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
@pytest.mark.parametrize("kind", ["people", "silos", "people, adaptive", "silos, adaptive"])
def test_a_run_of_broken_vectors_only_raises_at_its_end_and_one_sound_vector_is_enough(kind, secure):
    inputs = torch.ones(PEOPLE, 3)
    run = trainer(kind, inputs, secure=secure)
    with pytest.raises(InvalidInput, match=r"every vector was NaN or infinite.*not covered by ε"):
        run.run()
    assert run.ledger.remaining == 0
    inputs[5] = 0.0
    assert trainer(kind, inputs, secure=secure).run().rounds == ROUNDS


def test_what_a_run_leaves_for_others_is_the_same_whether_or_not_all_vectors_were_broken(tmp_path):
    plan, inputs = plan_for("people"), torch.ones(PEOPLE, 3)
    with pytest.raises(InvalidInput, match="every vector"):
        trainer("people", inputs, plan, run_directory=tmp_path / "broken").run()
    inputs[5] = 0.0
    trainer("people", inputs, plan, run_directory=tmp_path / "sound").run()
    names = {path.name for path in (tmp_path / "sound").iterdir()}
    assert names == {path.name for path in (tmp_path / "broken").iterdir()}
    assert names >= {"metrics.csv", "privacy.json", "config.json", "report.html", "model.pt"}
    for name in ("metrics.csv", "privacy.json", "config.json", "plan.json"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "sound" / name).read_bytes()
    kept = [checkpoint.load(tmp_path / place / "checkpoint.pt") for place in ("broken", "sound")]
    assert kept[0].history == kept[1].history


def test_a_run_in_which_no_round_gave_a_sum_raises_in_python_too():
    run = trainer("people", torch.zeros(PEOPLE, 3), dropout_rate=0.99, allow_failing_rounds=True)
    with pytest.raises(RoundFailed, match="none of 2 rounds gave a sum"):
        run.run()
