"""End to end: a SuperLink and three SuperNodes on 127.0.0.1, two rounds, one node killed while it trains."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import psutil

from skelmix.planning import Plan
from skelmix.studies.fleet import Loopback

APP = Path(__file__).parent / "recording_app"
SECONDS = 300.0  # a bound for a busy machine; a quiet one needs a fraction of it


def test_two_rounds_with_a_node_killed_in_the_second(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with Loopback(3, directory=tmp_path / "flower") as deployment:
        started = [psutil.Process(process.pid) for process in deployment.processes.values()]
        deployment.submit(APP, config=f'out="{out}"')
        end = time.monotonic() + SECONDS
        while not (out / "kill-me").exists():
            assert deployment.processes["run"].poll() is None, deployment.log("run")
            assert time.monotonic() < end, deployment.log("run")
            time.sleep(0.1)
        deployment.kill("supernode-2")
        deployment.wait(end - time.monotonic())
    assert not any(process.is_running() for process in started), "nothing is left behind"

    history = json.loads((out / "history.json").read_text())
    assert [record["survivors"] for record in history] == [3, 2]
    assert [record["waves"] for record in history] == [4, 2], "two waves for the second round"
    assert all(record["opened"] for record in history)
    assert len((out / "ledger.jsonl").read_text().splitlines()) == 3, "a header and two rounds"
    plan = Plan.from_json((out / "plan.json").read_text())
    for number, record in enumerate(history):
        sent = [np.load(path).astype(np.int64) for path in sorted(out.glob(f"round-{number + 1}-node-*.npy"))]
        assert len(sent) == record["survivors"]
        ideal = plan.mechanism.decode(sum(sent) % plan.mechanism.modulus, round=number) / plan.cohort.expected
        before, after = (np.load(out / f"model-{n}.npz") for n in (number, number + 1))
        moved = np.concatenate([(after[name] - before[name]).ravel() for name in ("b", "w")])
        if record["survivors"] == record["cohort"]:
            assert np.abs(moved - ideal).max() < 1e-5, "the model moved by exactly the ideal sum"
        else:  # survivors made up for the noise of the one that is missing
            assert 0 < np.abs(moved - ideal).max() < 8 * np.sqrt(plan.predicted.mse) / plan.cohort.expected
