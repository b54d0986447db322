"""Training with an adaptive clip: what the optimiser sees, who counts, how the clip norm moves."""

import dataclasses
import math
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import skelmix as sk
from helpers.federation import DIMENSION, POPULATION, clients, network, records
from helpers.noiseless import noiseless
from skelmix.errors import InvalidInput
from skelmix.federated import trainer as module
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import Gradients
from skelmix.federated.silo_clients import SiloClients
from skelmix.federated.trainer import Trainer
from skelmix.noise.entropy import ReproducibleEntropy

CLIP = sk.AdaptiveClip(start=2.0, rate=0.5)


@lru_cache
def plan_for(silos=False, clip=CLIP, rounds=6, keep=None, **cohort):
    contributors = (
        sk.Silos(count=2, records=POPULATION, batch=40)
        if silos
        else sk.Cohort(expected=40, population=POPULATION, **cohort)
    )
    return sk.plan(
        sk.PrivacyTarget(50.0, 1e-5), dimension=DIMENSION, bits=16, rounds=rounds, bound="rdp", clip=clip,
        cohort=contributors, scale=200.0, keep=keep, alignment=0.05,
    )  # fmt: skip


def without_noise(plan):
    fine = dataclasses.replace(plan.mechanism, scale=2.0**16, bits=32)
    return dataclasses.replace(plan, mechanism=noiseless(fine))


def make(plan, people=None, *, lr=0.0, **options):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    if isinstance(plan.cohort, sk.Silos):
        inputs, targets = records()
        people = people or SiloClients.of([(inputs[:150], targets[:150]), (inputs[150:], targets[150:])])
    return Trainer(model, cross_entropy, people or clients(), plan, optimizer, **options)


def gradient(trainer):
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters()]).double().numpy()


def vectors_of(cohort):
    blocks = Gradients(network(), cross_entropy).blocks(clients(), cohort)
    return np.concatenate([block.copy() for block in blocks]).astype(np.float64)


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
def test_without_noise_the_optimiser_sees_the_clipped_mean_at_each_rounds_clip_norm(secure, monkeypatch):
    cohorts = []
    draw = module.draw_cohort
    monkeypatch.setattr(module, "draw_cohort", lambda *a: cohorts.append(draw(*a)) or cohorts[-1])
    trainer = make(without_noise(plan_for()), secure=secure, entropy=ReproducibleEntropy(5))
    trainer.clip.continue_from(CLIP.start)
    clip = CLIP.start
    for _ in range(3):
        record = trainer.step()
        vectors = vectors_of(cohorts[-1])
        norms = np.linalg.norm(vectors, axis=1)
        expected = (vectors * np.minimum(1, clip / norms)[:, None]).sum(0) / 40
        np.testing.assert_allclose(gradient(trainer), expected, atol=1e-4)
        inside = int((norms <= clip).sum())
        fraction = 0.5 + (2 * inside - len(norms)) / 2 / 40  # over the expected 40, not over those who came
        assert record.clip_norm == clip
        assert record.within == pytest.approx(min(1, max(0, fraction)), abs=1e-3)
        clip = CLIP.next(clip, record.within)
    assert trainer.clip.norm == clip != CLIP.start


def test_silos_give_the_same_sums_record_by_record():
    whole = sk.plan(
        sk.PrivacyTarget(50.0, 1e-5), dimension=DIMENSION, bits=16, rounds=2, bound="rdp", clip=CLIP,
        cohort=sk.Silos(count=2, records=POPULATION, batch=POPULATION), scale=200.0,
    )  # fmt: skip
    trainer = make(without_noise(whole), entropy=ReproducibleEntropy(5), diagnostics=True)
    trainer.clip.continue_from(2.0)
    record = trainer.step()
    vectors = vectors_of(np.arange(POPULATION))
    norms = np.linalg.norm(vectors, axis=1)
    expected = (vectors * np.minimum(1, 2.0 / norms)[:, None]).sum(0) / POPULATION
    np.testing.assert_allclose(gradient(trainer), expected, atol=1e-4)
    assert record.within == pytest.approx((norms <= 2.0).mean(), abs=1e-3)
    assert record.diagnostics.clipped_fraction == pytest.approx((norms > 2.0).mean())
    assert record.diagnostics.rms_norm == pytest.approx(math.sqrt((norms**2).mean()), rel=1e-5)


def test_who_contributes_nothing_leaves_the_indicator_at_zero():
    inputs, targets = (tensor.clone() for tensor in records())
    inputs[:200] = torch.nan
    plan = sk.plan(
        sk.PrivacyTarget(50.0, 1e-5), dimension=DIMENSION, bits=16, rounds=2, bound="rdp", scale=200.0,
        clip=sk.AdaptiveClip(start=2.0**40), cohort=sk.Cohort.everyone(POPULATION),
    )  # fmt: skip
    people = Clients(inputs, targets)
    trainer = make(without_noise(plan), people, entropy=ReproducibleEntropy(1), diagnostics=True)
    record = trainer.step()
    assert record.diagnostics.broken == 200
    assert record.within == pytest.approx(0.75, abs=1e-3), (
        "200 within of 400 expected, none beyond: 1/2 + 1/4"
    )


def test_coins_and_caps_send_nothing_in_the_indicator_either():
    plan = sk.plan(
        sk.PrivacyTarget(50.0, 1e-5), dimension=DIMENSION, bits=16, rounds=3, bound="rdp", scale=200.0,
        clip=sk.AdaptiveClip(start=2.0**40, weight=0.5),
        cohort=sk.Cohort.everyone(POPULATION, max_participations=1),
    )  # fmt: skip
    trainer = make(without_noise(plan), entropy=ReproducibleEntropy(1))
    trainer.clip.continue_from(2.0**40)
    fractions = [trainer.step().within for _ in range(2)]
    assert fractions == pytest.approx([1.0, 0.5], abs=1e-3), "all are within, then nobody contributes"
    assert not gradient(trainer).any()


@pytest.mark.parametrize("options", [{}, {"keep": 0.2}, {"silos": True}, {"silos": True, "keep": 0.2}])
def test_the_clip_norm_comes_down_from_thirty_times_the_median(options):
    median = float(np.median(np.linalg.norm(vectors_of(np.arange(POPULATION)), axis=1)))
    clip = sk.AdaptiveClip(start=30 * median, quantile=0.5)
    trainer = make(plan_for(clip=clip, rounds=20, **options), entropy=ReproducibleEntropy(2))
    result = trainer.run()
    norms = [record.clip_norm for record in result.history]
    assert norms[0] == 30 * median
    assert norms[-1] == pytest.approx(median, rel=0.5)
    assert all(clip.reachable(norm, round) for round, norm in enumerate(norms))


def test_the_search_down_from_far_too_large_a_clip_norm_does_not_move_the_model():
    clip = sk.AdaptiveClip(start=2.0**30, weight=0.5)
    trainer = make(plan_for(clip=clip), entropy=ReproducibleEntropy(4), lr=1.0)
    before = [p.clone() for p in trainer.model.parameters()]
    norms = [trainer.step().clip_norm for _ in range(4)]
    assert norms[-1] < 2.0**29
    assert all(torch.equal(p, q) for p, q in zip(before, trainer.model.parameters(), strict=True))


def test_a_failed_round_keeps_the_clip_norm():
    trainer = make(plan_for(), dropout_rate=0.9, allow_failing_rounds=True)
    records = [trainer.step() for _ in range(2)]
    assert [(record.opened, record.clip_norm, record.within) for record in records] == [
        (False, 2.0, None)
    ] * 2


def test_a_resumed_run_goes_on_with_the_clip_norm_it_had(tmp_path):
    plan = plan_for()
    whole = make(plan, run_directory=tmp_path / "whole", entropy=ReproducibleEntropy(3)).run()
    first = make(plan, run_directory=tmp_path / "half", entropy=ReproducibleEntropy(3))
    for _ in range(3):
        first.step()
    first.save()
    first.close()
    model = network()
    again = Trainer.resume(
        tmp_path / "half", model, cross_entropy, clients(), torch.optim.SGD(model.parameters(), lr=0.0),
        entropy=ReproducibleEntropy(3),
    )  # fmt: skip
    assert again.clip.norm == first.clip.norm != CLIP.start
    result = again.run()
    assert [r.clip_norm for r in result.history] == [r.clip_norm for r in whole.history]
    assert [r.within for r in result.history] == [r.within for r in whole.history]


def test_a_plan_for_another_model_is_refused_by_its_weights_not_its_coordinates():
    small = sk.plan(
        sk.PrivacyTarget(50.0, 1e-5), dimension=DIMENSION - 1, bits=16, bound="rdp", scale=200.0,
        clip="adaptive", cohort=sk.Cohort.everyone(POPULATION),
    )  # fmt: skip
    with pytest.raises(InvalidInput, match=f"plan is for {DIMENSION - 1}"):
        make(small)
