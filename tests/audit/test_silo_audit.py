"""One record against the aggregator's view: sound silos hold their claim, planted defects do not."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import cycle

import numpy as np
import pytest

from helpers.audit import CANARIES, canary_plan
from skelmix.audit.canaries import audit_training
from skelmix.audit.silos import audit_record
from skelmix.errors import InvalidInput
from skelmix.mechanisms import Skellam, SkellamMixture
from skelmix.mechanisms.silo_sum import SiloSum
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.planning import PrivacyTarget, privacy_report
from skelmix.planning.silos import Silos
from skelmix.rounds import sampling

DELTA = 1e-2
TWO = Silos(count=2, records=10, batch=10)
HALF_DRAWN = Silos(count=1, records=10, batch=5)
OTHERS = np.ones((260, 1))


def fields(scale=33.0, shares=2):
    """Noise of 1/0.7 times the clip norm: there a few thousand games tell half of its variance from all."""
    noise = (scale / 0.7) ** 2 / 2
    return dict(
        dimension=1, bits=16, scale=scale, clip_norm=1.0, total_noise=noise, shares=shares, rotate=False
    )


def holds(kind, silos=TWO, *, trials, others=None, **given):
    """Whether the claim for the sound mechanism survives an attack on this one."""
    sound = SkellamMixture(**fields(**given))
    claim = privacy_report(sound, bound="gdp", cohort=silos, rounds=1, delta=DELTA).epsilon
    return audit_record(
        kind(**fields(**given)),
        silos,
        delta=DELTA,
        claimed=claim,
        trials=trials,
        others=others,
        entropy=ReproducibleEntropy(2),  # so that a defect that is caught is caught every time
        confidence=0.999,
    ).holds


class NoClip(SkellamMixture):
    @property
    def fixed_point(self):
        grid = super().fixed_point
        return replace(grid, l2=8 * grid.l2)


class LostNoise(SkellamMixture):
    """Every second message, which is the second silo's, comes without noise."""

    places = cycle((0, 1))

    def encode_silo(self, silo, *, shares=None, entropy=None):
        message = super().encode_silo(silo, shares=shares, entropy=entropy)
        return np.zeros_like(message) if next(self.places) else message


class ShortFloats(SiloSum):
    """Adds up in bfloat16, as accelerators do, where a clipped record may move a large sum by twice its
    length. For one coordinate."""

    def add(self, vectors):
        radius = self.mechanism.radius
        scaled = np.asarray(vectors, np.float64)[:, 0] * self.mechanism.scale
        self.values = np.clip(scaled, -radius, radius).tolist()

    def _total(self):
        total = 0.0
        for value in getattr(self, "values", ()):
            total = _bfloat16(total + value)
        return np.array([round(total * 2.0**self._grid.fraction_bits)], np.int64)


def _bfloat16(value):
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 256), exponent - 8)


class FloatSums(SkellamMixture):
    def silo_sum(self, *, round):
        return ShortFloats(self, round)


@pytest.mark.parametrize(("defect", "trials"), [(NoClip, 2_000), (LostNoise, 24_000)])
def test_the_game_catches(defect, trials):
    assert holds(SkellamMixture, trials=trials, scale=256.0)
    assert not holds(defect, trials=trials, scale=256.0)


def test_the_game_catches_float_sums_beside_many_records():
    assert holds(SkellamMixture, trials=5_400, others=OTHERS)
    assert not holds(FloatSums, trials=5_400, others=OTHERS)
    assert holds(FloatSums, trials=5_400), "without other records the same arithmetic is exact"


def test_the_game_catches_a_doubled_rate(monkeypatch):
    game = {"silos": HALF_DRAWN, "trials": 24_000, "scale": 256.0, "shares": 1}
    assert holds(SkellamMixture, **game)
    original = sampling.poisson
    monkeypatch.setattr(sampling, "poisson", lambda count, rate, entropy: original(count, 2 * rate, entropy))
    assert not holds(SkellamMixture, **game)


def silo_canary_plan():
    """20 of 512 records in 4 silos, 20 rounds."""
    base = canary_plan()
    silos = Silos(count=4, records=CANARIES, batch=20, dropout_tolerance=0.5)
    mechanism = replace(base.mechanism, shares=2)
    report = privacy_report(mechanism, bound="rdp", cohort=silos, rounds=base.rounds, delta=1e-6)
    target = PrivacyTarget(report.epsilon, 1e-6)
    return replace(base, target=target, cohort=silos, mechanism=mechanism, report=report)


def test_records_as_canaries_catch_sampling_that_is_not_done(monkeypatch):
    plan = silo_canary_plan()
    assert audit_training(plan).holds
    original, coin = sampling.poisson, Fraction(1, 2)

    def everyone(count, rate, entropy):
        return original(count, rate, entropy) if rate == coin else np.arange(count)

    monkeypatch.setattr(sampling, "poisson", everyone)
    assert not audit_training(plan).holds


def test_mechanisms_that_cannot_sum_records_are_refused():
    with pytest.raises(InvalidInput, match="cannot sum records"):
        audit_record(Skellam(4, 10, 16.0, 1.0, 460.0), TWO, delta=DELTA, claimed=1.0)
