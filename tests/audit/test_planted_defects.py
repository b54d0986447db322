"""Planted defects: each is caught, and the sound system beside it is not flagged.

A defect is planted by overriding one step of the real mechanism. The claim is the sound mechanism's own.
"""

import os
import signal
import warnings
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import skelmix as sk
from helpers.audit import canary_plan
from helpers.hypothesis_tests import SHARE
from helpers.profiles import convolved_profiles, gaussian_profile
from helpers.repeats import agreement_p_value
from skelmix.audit.canaries import audit_training
from skelmix.audit.release import audit_release
from skelmix.encoding.fused import encode_rows
from skelmix.encoding.rotation import unrotate
from skelmix.encoding.wrapping import wrap
from skelmix.errors import PolicyViolation, RoundFailed
from skelmix.flower import plan_limits
from skelmix.flower.policy import ClientPolicy
from skelmix.mechanisms import FlatClip, L2Clip, SkellamMixture, mixture
from skelmix.mechanisms.clips import Clipped
from skelmix.mechanisms.mechanism import IntegerMechanism
from skelmix.noise import entropy as entropy_module
from skelmix.noise.entropy import ReproducibleEntropy, SystemEntropy
from skelmix.noise.laws import Skellam
from skelmix.noise.table import sampler
from skelmix.planning import Cohort, privacy_report
from skelmix.rounds import sampling
from skelmix.secagg.in_memory import secure_sum

DELTA = 1e-2
FIELDS = dict(dimension=16, bits=8, scale=8.0, clip_norm=1.0, total_noise=40.0)


@lru_cache
def claimed(**fields):
    report = privacy_report(
        SkellamMixture(**(FIELDS | fields)),
        bound="rdp",
        cohort=Cohort(1, 1, sampling="none"),
        rounds=1,
        delta=DELTA,
    )
    return report.epsilon


def holds(kind, *, trials=200_000, **fields):
    mechanism = kind(**(FIELDS | fields))
    return audit_release(mechanism, delta=DELTA, claimed=claimed(**fields), trials=trials).holds


class HalfVariance(SkellamMixture):
    def participant_law(self, shares=None):
        return Skellam(super().participant_law(shares).rate / 2)


class StepByStep(SkellamMixture):
    """Not in one fused pass, so that a single step can be replaced."""

    _encode_block = IntegerMechanism._encode_block


class NoRoundingNoise(StepByStep):
    def _round_and_noise(self, x, draws, out, entropy):
        out[:] = wrap(np.rint(x).astype(np.int64) + draws.sample(x.shape, entropy=entropy), self.bits)


class NoClip(StepByStep):
    def _clip(self, x):
        return Clipped(0, 0, 0.0)


class ClipsBeforeTheChoice(StepByStep):
    """A vector whose whole length is on the coordinates that are sent is let through at γΔ."""

    def _clip(self, x):
        return L2Clip().apply(x, self.scale * self.clip_norm)


class LostShare(SkellamMixture):
    """The second of two participants drops out, and the sum is opened without its noise."""

    def encode(self, vectors, **options):
        sent = super().encode(vectors, **options)
        sent[len(sent) // 2 :] = 0
        return sent


# half of the noise is proved too little by ε = 2.8 ± 0.04 in this many games; 2.4 is claimed
MANY = {"dimension": 2, "trials": 600_000}


@pytest.mark.parametrize(
    ("defect", "fields"),
    [
        (HalfVariance, MANY),
        (NoRoundingNoise, {"dimension": 64, "scale": 4.1, "total_noise": 10.0}),
        (NoClip, {}),
        (ClipsBeforeTheChoice, {"keep": 4, "clip_slack": 0.5}),
        (LostShare, MANY | {"shares": 2}),
    ],
)
def test_the_distinguishing_game_catches(defect, fields):
    assert holds(SkellamMixture, **fields)
    assert not holds(defect, **fields)


def test_the_game_catches_a_fused_pass_that_does_not_clip(monkeypatch):
    def unclipped(*rows, **given):
        encode_rows(*rows, **given | {"l2": 1e9})

    monkeypatch.setattr(mixture, "encode_rows", unclipped)
    assert not holds(SkellamMixture)


class NoLinfClip(StepByStep):
    def _clip(self, x):
        return L2Clip().apply(x, self.radius)


def over_the_flat_certificate(kind):
    """Largest quotient of the exact privacy profile, of what the encoder rounds, and its flat certificate's.

    The vector is within the L2 norm, but rotation turns it into a few coordinates of 1/4 each, far above b.
    """
    mechanism = kind(dimension=65_536, bits=8, scale=1.2, clip_norm=1.0, total_noise=1.0, clip=FlatClip(0.03))
    certificate = mechanism.certificate("flat", 1e-10)
    spikes = np.zeros(65_536)
    spikes[:23] = 0.25
    vector = unrotate(spikes / mechanism.scale, mechanism.rotation_seed, 0, dimension=65_536)
    with mechanism._prepared(0, vector[None], 0) as (rounded_next, _):
        values, counts = np.unique(np.abs(rounded_next).round(6), return_counts=True)
    coordinates = [(x, count) for x, count in zip(values, counts, strict=True) if x > 0]
    epsilons = np.linspace(0, 8, 41)
    profiles = convolved_profiles(mechanism.accounted_law, coordinates, epsilons, 60)
    allowed = gaussian_profile(epsilons, certificate.mu) + certificate.slack
    return max(float((profile / allowed).max()) for profile in profiles)


def test_an_encoder_that_does_not_enforce_b_is_caught():
    """The flat certificate is about vectors with |x_j| <= b. Without that clip events of probability 1e-9
    break it: too rare for a game, so this one is computed."""
    assert over_the_flat_certificate(SkellamMixture) < 1
    assert over_the_flat_certificate(NoLinfClip) > 2


def test_a_lost_share_cannot_be_opened():
    """What keeps the real system from it: with a threshold of all, a sum with a dropout fails."""
    vectors = np.ones((3, 4), np.uint8)
    with pytest.raises(RoundFailed):
        secure_sum(vectors, modulus=256, threshold=3, dropouts={"masked": [1]})


def in_one_draw(mechanism):
    """One participant with all of the noise: a sum of shares has the same law, and takes longer to draw."""
    return replace(mechanism, shares=1)


def _only_the_amplified_epsilon(policy, plan):
    if plan.report.epsilon > policy.max_epsilon or plan.report.delta > policy.max_delta:
        yield "too dear"


def test_a_policy_that_believes_every_population_is_caught(monkeypatch):
    """60 of ten million are (0, δ)-private with next to no noise. A node that knows whose round it is must
    not see more than the policy's ε of one round in it."""
    policy = ClientPolicy(max_epsilon_round=4.0, max_epsilon_aggregator=4.0)

    def honoured(population, epsilon, delta):
        plan = sk.plan(
            sk.PrivacyTarget(epsilon, delta), dimension=16, bits=20, scale=100.0, mechanism="skellam",
            bound="paper", cohort=sk.Cohort(60, population),
        )  # fmt: skip
        try:
            policy.check_plan(plan)
        except PolicyViolation:
            return "refused"
        limit = policy.max_epsilon_round
        return audit_release(in_one_draw(plan.mechanism), delta=delta, claimed=limit).holds

    assert honoured(600, 1.0, 1e-3) is True
    assert honoured(10_000_000, 1.0, 1e-3) == "refused"
    monkeypatch.setattr(plan_limits, "_reasons", _only_the_amplified_epsilon)
    assert honoured(10_000_000, 1.0, 1e-3) is False


@pytest.mark.parametrize(
    ("cohort", "delta"),
    [
        (sk.Cohort(60, 60, sampling="none", contribute=9e-4), 1e-3),
        (sk.Silos(count=10, records=10**5, batch=1), 9.9e-6),
    ],
)
def test_a_policy_that_counts_a_rare_coin_or_draw_as_noise_is_caught(monkeypatch, cohort, delta):
    """A vector that is sent less often than δ needs no noise for (0, δ); when it is sent, it is bare."""
    policy = ClientPolicy(max_epsilon_round=5.0, max_epsilon_aggregator=1e9)
    plan = sk.plan(
        sk.PrivacyTarget(0.1, delta), dimension=16, bits=20, scale=100.0, mechanism="smm", bound="gdp",
        cohort=cohort,
    )  # fmt: skip
    with pytest.raises(PolicyViolation, match="one round costs"):
        policy.check_plan(plan)
    monkeypatch.setattr(plan_limits, "round_epsilon", lambda plan: plan.report.epsilon)
    policy.check_plan(plan)
    assert not audit_release(in_one_draw(plan.mechanism), delta=delta, claimed=5.0).holds


def test_a_node_that_refuses_by_its_data_is_caught(monkeypatch):
    """The server sends a weight of 3e38: training overflows where a private bit is set. It guesses the bits
    by who refuses."""
    from helpers.server_view import Node, let_failures_through, one_bit_of_each_record

    plan = sk.plan(
        sk.PrivacyTarget(8.0, 1e-5), dimension=6, bits=20, scale=2000.0, mechanism="skellam", bound="paper",
        rounds=3, cohort=sk.Cohort(4, 4, dropout_tolerance=0.5, sampling="none"),
    )  # fmt: skip
    node = Node(plan, {"w": np.ones(6, np.float32)})
    guessed, ones = one_bit_of_each_record(node)
    assert guessed == 1 - ones, "nobody refuses, so every guess is 0"
    let_failures_through(monkeypatch)
    assert one_bit_of_each_record(node)[0] == 1.0


class Stuck(ReproducibleEntropy):
    """Every participant is handed the same stream."""

    def spawn(self):
        return ReproducibleEntropy(0)


def test_a_repeated_stream_is_caught():
    mechanism = SkellamMixture(**(FIELDS | {"dimension": 1024}))
    vector = np.zeros(1024)

    def chance(source):
        releases = [mechanism.encode(vector, round=0, entropy=source) for _ in range(2)]
        return agreement_p_value(*releases, mechanism.total_law(1))

    assert chance(SystemEntropy()) > SHARE
    assert chance(ReproducibleEntropy(7)) > 1e-6
    assert chance(Stuck(7)) < SHARE


def noise_of_parent_and_child(source):
    """Noise drawn after a fork by both sides from what was one stream."""
    law = Skellam(40)
    draws = sampler(law)
    draws.sample(1000, entropy=source)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of numba exist, the child starts none
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        os.write(writing, draws.sample(1000, entropy=source).astype(np.int64).tobytes())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), np.int64)
    os.waitpid(child, 0)
    return draws.sample(1000, entropy=source).astype(np.int64), theirs, law


def test_a_seed_reused_across_a_fork_is_caught(monkeypatch):
    assert agreement_p_value(*noise_of_parent_and_child(SystemEntropy())) > SHARE
    monkeypatch.setattr(entropy_module, "_process", lambda: (1, 0))  # does not notice the fork
    assert agreement_p_value(*noise_of_parent_and_child(SystemEntropy())) < SHARE


def test_subsampling_that_is_claimed_but_not_done_is_caught(monkeypatch):
    plan = canary_plan()
    assert audit_training(plan, confidence=0.999).holds
    monkeypatch.setattr(
        sampling, "draw_cohort", lambda kind, population, expected, entropy: np.arange(population)
    )
    assert not audit_training(plan, confidence=0.999).holds


class SameSigns(SkellamMixture):
    """The rotation ignores the round."""

    def encode(self, vectors, *, round, **options):
        return super().encode(vectors, round=0, **options)

    def decode(self, total, *, round):
        return super().decode(total, round=0)


def test_rotation_signs_that_are_reused_are_caught_where_it_matters():
    """A vector that one rotation makes a spike loses most of its length to the flat clip in that round. With
    fresh signs every round the loss averages out; with the same signs it never does."""
    rounds, dimension = 64, 256
    spike = np.zeros(dimension)
    spike[0] = 1.0
    vector = unrotate(spike, bytes(32), 0, dimension=dimension)

    def kept(kind):
        mechanism = kind(dimension, 10, 32.0, 1.0, 4.0, clip=FlatClip(10.0))
        decoded = [mechanism.decode(mechanism.encode(vector, round=r), round=r) for r in range(rounds)]
        return float(np.mean(decoded, axis=0) @ vector)

    assert kept(SkellamMixture) > 0.9
    assert kept(SameSigns) < 0.5
