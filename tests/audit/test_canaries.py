"""Canaries in one run: the bound of Steinke, Nasr and Jagielski, and real training through it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import skelmix as sk
from helpers.audit import CANARIES, canary_plan
from skelmix.audit.canaries import audit_training, epsilon_at_least, judge, p_value, run_with_canaries
from skelmix.audit.release import audit_release
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.noise.laws import Skellam
from skelmix.noise.table import ExactSampler


def test_the_p_value_is_the_binomial_tail_without_delta():
    assert p_value(100, 40, 30, 0.0, 0.0) == pytest.approx(stats.binom.sf(29, 40, 0.5))
    assert p_value(100, 40, 30, 1.0, 0.0) == pytest.approx(stats.binom.sf(29, 40, 1 / (1 + np.exp(-1))))
    assert p_value(100, 40, 0, 1.0, 0.0) == 1


def test_delta_adds_its_term():
    """By hand, for r = v = 2: the windows below v are P[W = 1] and (P[W = 1] + P[W = 0])/2."""
    q = 1 / (1 + np.exp(-0.5))
    one, none = 2 * q * (1 - q), (1 - q) ** 2
    expected = q * q + 2 * 10 * 1e-3 * max(one, (one + none) / 2)
    assert p_value(10, 2, 2, 0.5, 1e-3) == pytest.approx(expected)


def test_the_largest_refuted_epsilon_is_where_the_p_value_meets_the_error():
    found = epsilon_at_least(1000, 200, 190, delta=1e-6, confidence=0.999)
    assert p_value(1000, 200, 190, found, 1e-6) == pytest.approx(1e-3, rel=1e-6)
    assert epsilon_at_least(1000, 200, 100, delta=1e-6, confidence=0.999) == 0
    assert epsilon_at_least(1000, 200, 200, delta=1e-6, confidence=0.999) > found


def test_randomised_response_is_not_refuted_and_nearly_reached():
    """Each canary's bit is released with odds e^ε: exactly (ε, 0)-private, and the bound comes close."""
    rng, epsilon, count = np.random.default_rng(11), 1.5, 20_000
    included = rng.random(count) < 0.5
    answers = included ^ (rng.random(count) > 1 / (1 + np.exp(-epsilon)))
    found = judge(answers.astype(float), included, claimed=epsilon, delta=1e-9)
    assert found.holds
    assert found.lower_bound > 0.8 * epsilon


def test_a_run_holds_its_claim():
    plan = canary_plan()
    assert plan.report.epsilon < 3
    found = audit_training(plan, confidence=0.999)
    assert found.holds
    assert set(found.to_dict()) >= {"claimed", "lower_bound", "confidence", "trials", "holds"}


def test_the_scores_see_the_canaries_when_there_is_little_noise():
    plan = canary_plan(multiplier=0.2, expected=CANARIES, rounds=1)
    scores, included = run_with_canaries(plan)
    # the others' rounding hides some: 0.841 ± 0.015 over 40 runs, and 0.5 ± 0.022 if nothing were seen
    assert ((scores > 0.5) == included).mean() > 0.74
    assert judge(scores, included, claimed=plan.report.epsilon, delta=1e-6, confidence=0.999).holds
    assert not judge(scores, included, claimed=1.0, delta=1e-6, confidence=0.999).holds


def train_with_canaries(plan):
    """The auditor sees the final model only. The loss is linear, so that canary j pulls weight j alone."""
    torch = pytest.importorskip("torch")
    from skelmix.federated.clients import Clients
    from skelmix.federated.trainer import Trainer

    included = torch.rand(CANARIES) < 0.5
    model = torch.nn.Linear(CANARIES, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    clients = Clients(torch.eye(CANARIES) * 4, -included.float())  # 4: the trainer has to clip it
    trainer = Trainer(
        model,
        lambda out, target: (out[..., 0] * target).sum(),
        clients,
        plan,
        torch.optim.SGD(model.parameters(), lr=1.0),
    )
    trainer.run()
    scores = model.weight.detach().numpy()[0].astype(np.float64)
    assert scores.std() > 0
    claim = {"claimed": plan.report.epsilon, "delta": plan.report.delta, "confidence": 0.999}
    return judge(scores, included.numpy(), **claim)


def test_the_real_trainer_holds_its_claim_and_one_that_does_not_sample_is_refuted(monkeypatch):
    """The control has everyone in every round. It is about sampling alone: see the test after this one."""
    pytest.importorskip("torch")
    from skelmix.federated import trainer

    plan = canary_plan()
    assert train_with_canaries(plan).holds
    monkeypatch.setattr(
        trainer, "draw_cohort", lambda kind, population, expected, entropy: np.arange(population)
    )
    assert not train_with_canaries(plan).holds


def test_missing_noise_is_seen_by_the_game_on_one_release_not_by_the_trainers_canaries():
    """The limits that docs/evidence/audits.md states: most canaries are in no round, so a hundredth of the
    noise's variance goes unnoticed in the final model. The game refutes it at the same mechanism's claim."""
    plan = canary_plan()
    quiet = replace(plan.mechanism, total_noise=plan.mechanism.total_noise / 100)
    assert train_with_canaries(replace(plan, mechanism=quiet)).holds
    sound = audit_release(plan.mechanism, delta=1e-2, bound="rdp", trials=4000, pairs=("concentrated",))
    assert sound.holds
    game = {"delta": 1e-2, "trials": 4000, "pairs": ("concentrated",), "claimed": sound.claimed}
    assert not audit_release(quiet, **game).holds


@pytest.mark.parametrize("colluding", [0, 1])
def test_canaries_see_the_accounted_noise_and_no_more_where_it_is_exact(colluding, monkeypatch):
    """All ten canaries may be in a sum that opens with six: its noise stays the same."""
    cohort = sk.Cohort.everyone(10, dropout_tolerance=0.4, colluding=colluding)
    plan = sk.plan(sk.PrivacyTarget(3.0, 1e-5), dimension=16, bits=12, bound="gdp", cohort=cohort)
    drawn, sample = [], ExactSampler.sample

    def watched(sampler, shape, **options):
        drawn.append(sampler.law)
        return sample(sampler, shape, **options)

    monkeypatch.setattr(ExactSampler, "sample", watched)
    for seed in range(20):
        run_with_canaries(plan, entropy=ReproducibleEntropy(seed))
    assert set(drawn) == {Skellam(plan.mechanism.total_noise)}


def test_bad_input_is_refused():
    with pytest.raises(InvalidInput):
        judge(np.array([np.nan, 1.0]), np.array([True, False]), claimed=1.0, delta=1e-5)
    with pytest.raises(InvalidInput):
        run_with_canaries(canary_plan(), CANARIES + 1)
    with pytest.raises(InvalidInput):
        p_value(10, 11, 3, 1.0, 0.0)
