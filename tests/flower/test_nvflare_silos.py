"""The silo app as a FLARE job: in the simulator, and in POC mode with a site killed while it trains.

These need NVIDIA FLARE, which skelmix does not install, and network namespaces: see the guide on NVFlare.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from skelmix.planning import Plan

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 900.0  # a bound for a busy machine
ROUNDS = 4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("nvflare") is None,
        reason="NVIDIA FLARE is missing: pip install nvflare==2.9.0",
    ),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="needs network namespaces (Linux, unshare)"),
]

# what a silo encodes, and what the server opens, written down by a copy of the app
CLIENT = """
def _record():
    import os
    import numpy as np
    from skelmix.mechanisms.silo import SiloMechanism
    original = SiloMechanism.encode_silo

    def watched(self, silo, *, shares=None, entropy=None):
        message = original(self, silo, shares=shares, entropy=entropy)
        file = f"{out}/sent-{{silo.round}}-{{os.getpid()}}.npz"
        np.savez(file, message=message, ideal=silo.clipped_sum())
        return message

    SiloMechanism.encode_silo = watched

_record()
"""
SERVER = """
def _record():
    from pathlib import Path
    import numpy as np
    from skelmix.mechanisms.silo import SiloMechanism
    decode, make_plan = SiloMechanism.decode, sk.plan

    def watched(self, total, *, round):
        np.save(f"{out}/opened-{{round}}.npy", total)
        return decode(self, total, round=round)

    def planned(*given, **options):
        plan = make_plan(*given, **options)
        Path("{out}/plan.json").write_text(plan.to_json())
        return plan

    SiloMechanism.decode, sk.plan = watched, planned

_record()
"""


@pytest.fixture
def app(tmp_path):
    """A copy of `examples/flower-silos` that writes down what it sums."""
    copy = tmp_path / "app"
    shutil.copytree(EXAMPLES / "flower-silos", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, more in (("client_app", CLIENT), ("server_app", SERVER)):
        with (copy / "flower_silos" / f"{name}.py").open("a") as file:
            file.write(more.format(out=tmp_path))
    return copy


@contextmanager
def running(app, workspace, *options):
    """The example's script; it is ended, and all that it started with it, if the test fails."""
    command = [sys.executable, str(EXAMPLES / "nvflare-silos" / "run.py"), "--app", str(app), *options]
    command += ["--workspace", str(workspace), "--timeout", str(SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


def result(run, workspace):
    out, _ = run.communicate(timeout=SECONDS + 60)
    assert run.returncode == 0, out
    return out, json.loads((workspace / "result.json").read_text())


def test_sums_in_the_simulator_are_the_ideal_ones(app, tmp_path):
    workspace = tmp_path / "flare"
    with running(app, workspace, "--rounds", "2") as run:
        out, found = result(run, workspace)
    assert "differential privacy over 2 rounds" in out
    assert [(r["opened"], r["survivors"], r["cohort"]) for r in found["rounds"]] == [(True, 3, 3)] * 2
    plan = Plan.from_json((tmp_path / "plan.json").read_text())
    for number in range(2):
        opened = np.load(tmp_path / f"opened-{number}.npy")
        sent = [np.load(path) for path in sorted(tmp_path.glob(f"sent-{number}-*.npz"))]
        assert len(sent) == 3
        total = sum(silo["message"].astype(np.int64) for silo in sent) % plan.mechanism.modulus
        assert np.array_equal(opened, total), "no number was changed on its way through FLARE"
        decoded, ideal = plan.mechanism.decode(opened, round=number), sum(silo["ideal"] for silo in sent)
        assert 0 < np.abs(decoded - ideal).max() < 8 * np.sqrt(plan.predicted.mse)
        without_one = total - sent[0]["message"].astype(np.int64)
        assert not np.array_equal(opened, without_one % plan.mechanism.modulus)
    assert "BrokenPipeError" not in (workspace / "run.log").read_text(errors="replace")


def test_a_round_survives_a_site_killed_while_it_trains_and_the_job_ends(app, tmp_path):
    workspace = tmp_path / "flare"
    with running(app, workspace, "--poc", "--rounds", str(ROUNDS)) as run:
        killed = kill_site(run, workspace)
        out, found = result(run, workspace)
        ended = time.monotonic() - killed
    for record in found["rounds"]:
        said = "sum of 2 of 3 silos" if record["opened"] else "skipped: "
        assert f"round {record['server_round']}: {said}" in out
        assert record["opened"] or record["reason"]
    opened = [record["opened"] for record in found["rounds"]]
    assert opened[0], "the round survives the loss of one of three, which the plan tolerates"
    assert len(opened) == ROUNDS, "and the run goes on: later rounds are opened or skipped"
    assert sum(opened) <= found["charged"] <= ROUNDS
    assert ended < 300, "the job ends by itself"
    assert "FINISHED:COMPLETED" in (workspace / "run.log").read_text()


def kill_site(run, workspace):
    """End all processes of site-3 at once, when it trains in the first round; the time of it."""
    end = time.monotonic() + SECONDS
    while True:
        logs = list(workspace.glob("poc/example_project/prod_00/site-3/*/client_app_log.txt"))
        if logs and logs[0].read_text(errors="replace").count("Start `flwr-clientapp`") >= 3:
            break
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.2)
    ours = psutil.Process(run.pid).children(recursive=True)
    roots = [process for process in ours if "site-3" in command(process)]
    doomed = {p.pid for root in roots for p in [root, *root.children(recursive=True)]}
    assert len(doomed) >= 3, "FLARE's client, its job, the SuperNode"
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return time.monotonic()


def command(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""
