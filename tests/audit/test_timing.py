"""The measurement of the timing side channel finds a dependence that is there, and none that is not.

Clock and sampler are planted: what a real clock says on a shared machine is evidence, not a test.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from skelmix.audit import timing
from skelmix.errors import InvalidInput

#: a p-value below this is a finding. Where the halves differ in spread, not in place, the test's own variance
#: is up to a third too small: 1e-9 is then still less than one false alarm in a million runs
ERROR = 1e-9

SAMPLES, BATCHES = 64, 2000
BASE = 1e6  # nanoseconds a batch


class Planted:
    """A sampler whose batches take BASE nanoseconds, one in a hundred more or less by chance, and `extra` of
    the values drawn. The deviation differs from batch to batch, so that the properties of a batch do."""

    def __init__(self, extra):
        self.rng, self.extra, self.now, self.calls = np.random.default_rng(), extra, 0, 0

    def sample(self, count, out=None, entropy=None):
        values = np.rint(self.rng.normal(0, self.rng.uniform(5, 20), count)).astype(np.int16)
        if out is None:
            return values
        out[:] = values
        self.calls += 1
        self.now += int(BASE * (1 + 0.01 * self.rng.standard_normal()) + self.extra(values.astype(np.int64)))
        return out


def measured(monkeypatch, extra):
    """({property: dependence}, timing, sampler) with a planted sampler and its clock."""
    planted = Planted(extra)
    monkeypatch.setattr(timing, "sampler", lambda law: planted)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter_ns=lambda: planted.now))
    found = timing.measure(60.0, SAMPLES, BATCHES)
    return {one.property: one for one in found.dependences}, found, planted


def test_times_that_do_not_depend_on_the_output_are_not_flagged(monkeypatch):
    by_name, found, planted = measured(monkeypatch, lambda values: 0.0)
    assert set(by_name) == {"sum", "sum of squares", "values in the tails"}
    assert all(one.p_value > ERROR for one in by_name.values())
    assert all(abs(one.difference) < 0.005 for one in by_name.values())
    assert found.seconds == pytest.approx(BASE * 1e-9, rel=0.005)
    assert planted.calls > BATCHES  # some to warm up, which are not timed


def test_a_slow_path_in_the_tails_is_found(monkeypatch):
    """A twentieth more for each value beyond three deviations of Sk(60, 60): the sum tells nothing of it."""
    edge = 3 * 120**0.5
    by_name, _, _ = measured(monkeypatch, lambda values: 0.05 * BASE * np.count_nonzero(abs(values) > edge))
    assert by_name["values in the tails"].p_value < ERROR
    assert by_name["values in the tails"].difference > 0.05
    assert by_name["sum of squares"].p_value < ERROR  # large values make both
    assert by_name["sum"].p_value > ERROR


@pytest.mark.parametrize("sign", [1, -1])
def test_time_that_grows_with_the_sum_is_found_with_its_sign(monkeypatch, sign):
    by_name, _, _ = measured(monkeypatch, lambda values: sign * 0.02 * BASE * np.tanh(values.sum() / 100))
    assert by_name["sum"].p_value < ERROR
    assert sign * by_name["sum"].difference > 0.01
    assert by_name["sum of squares"].p_value > ERROR
    assert by_name["values in the tails"].p_value > ERROR


def test_the_real_sampler_is_measured():
    found = timing.measure(samples=256, batches=40)
    stored = json.loads(json.dumps(found.to_dict()))
    assert (stored["law"], stored["samples"], stored["batches"]) == ("Sk(60, 60)", 256, 40)
    assert 0 < stored["seconds"] < 1
    assert len(stored["dependences"]) == 3
    assert all(0 <= one["p_value"] <= 1 for one in stored["dependences"])


@pytest.mark.parametrize("bad", [{"samples": 0}, {"batches": 7}, {"rate": -1.0}])
def test_what_cannot_be_measured_is_refused(bad):
    with pytest.raises(InvalidInput):
        timing.measure(**({"samples": 16, "batches": 8} | bad))
