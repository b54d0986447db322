"""Run the silo app as a FLARE job on this machine, show its result and privacy report, clean up.

    python run.py               in FLARE's simulator
    python run.py --poc         in POC mode: a server and three clients as separate processes, with TLS
    python run.py --flower      before it also on plain Flower, to compare the seconds per round

FLARE's servers listen on all interfaces, so everything runs in a network namespace with nothing but loopback
(Linux, `unshare`), and in a process namespace: when the run ends, its time is up or this script is ended, the
kernel ends all that it started. Files go to a temporary directory, unless --workspace is given.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NEEDED = ("nvflare", "flwr", "torch", "skelmix")
NO_RESULT = "ended without a result"
LOGIN_SECONDS = 120.0  # FLARE's own ten may pass on a busy machine, and the run would be lost
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
NAMESPACES = ("unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")


def main() -> None:
    given = arguments()
    if given.inside:
        return inside(given)
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        sys.exit(f"missing: {', '.join(missing)}. Install nvflare==2.9.0 and skelmix[flower,torch]")
    from skelmix.datasets import load

    load("mnist")  # before the network is gone
    if given.workspace:
        given.workspace.mkdir(parents=True, exist_ok=True)
        return outside(given, given.workspace.resolve())
    with tempfile.TemporaryDirectory(prefix="skelmix-flare-", ignore_cleanup_errors=True) as directory:
        outside(given, Path(directory))


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--poc", action="store_true", help="separate processes instead of the simulator")
    options.add_argument("--flower", action="store_true", help="first run the same app on plain Flower")
    options.add_argument("--silos", type=int, default=3)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--app", type=Path, default=HERE.parent / "flower-silos")
    options.add_argument("--workspace", type=Path, help="where files are kept; by default nowhere")
    options.add_argument("--timeout", type=float, default=900.0, help="seconds until the run is given up")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return options.parse_args()


def outside(given: argparse.Namespace, workspace: Path) -> None:
    """Start this script again in namespaces of its own, wait for its end, show what it wrote."""
    for name in ("home", "state"):
        (workspace / name).mkdir(exist_ok=True)
    for name in ("result.json", "flower.json"):
        (workspace / name).unlink(missing_ok=True)
    home = Path.home()
    environment = {
        **os.environ,
        "HOME": str(workspace / "home"),
        "FLWR_HOME": str(workspace / "home" / "flwr"),
        "XDG_STATE_HOME": str(workspace / "state"),
        "SKELMIX_CACHE": os.environ.get("SKELMIX_CACHE", str(home / ".cache" / "skelmix")),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "NVFLARE_POC_WORKSPACE": str(workspace / "poc"),
        "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "30",  # seconds for a lost site's last word
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    root = () if os.geteuid() == 0 else ("--map-root-user",)
    again = [sys.executable, str(HERE / "run.py"), *sys.argv[1:], "--inside", "--workspace", str(workspace)]
    command = [*ENDS_WITH_US, *NAMESPACES, *root, *again]
    print(f"running; log: {workspace / 'run.log'}", flush=True)
    end = time.monotonic() + given.timeout
    failure = attempt(command, environment, workspace, end - time.monotonic())
    if failure == NO_RESULT and not any(workspace.glob("**/superlink_log.txt")):
        # FLARE's simulator may lose a client while it starts. Flower has not started, so no silo was asked
        # for anything, and another attempt costs no privacy; after that it would.
        print("FLARE did not start the job: again, once", flush=True)
        failure = attempt(command, environment, workspace, end - time.monotonic())
    if failure:
        if (workspace / "result.json").exists():
            show(workspace)
        lines = (workspace / "run.log").read_text(errors="replace").splitlines()
        sys.exit("\n".join([*lines[-30:], f"the run {failure}"]))
    show(workspace)


def attempt(command: list[str], environment: dict[str, str], workspace: Path, seconds: float) -> str:
    """Run the command; why it failed, or nothing."""
    with (workspace / "run.log").open("ab") as log:
        try:
            done = subprocess.run(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=max(1.0, seconds)
            )
        except subprocess.TimeoutExpired:  # unshare is killed, and all that it started with it
            return "did not end in time"
    if done.returncode:
        return f"ended with {done.returncode}"
    if not (workspace / "result.json").exists():
        return NO_RESULT
    return (
        ""
        if json.loads((workspace / "result.json").read_text())["finished"]
        else "failed in the server's app"
    )


def inside(given: argparse.Namespace) -> None:
    """What runs in the namespaces."""
    from job import silo_job
    from nvflare.recipe import PocEnv
    from nvflare.recipe.spec import Recipe

    workspace = given.workspace
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    settings: dict[str, Any] = {"num-rounds": given.rounds, "batch": 600}
    if given.flower:
        flower(given, settings)
    job = silo_job(given.app, given.silos, {**settings, "result": str(workspace / "result.json")})
    if not given.poc:
        job.simulator_run(str(workspace / "simulator"), n_clients=given.silos, threads=given.silos)
        return
    environment = PocEnv(num_clients=given.silos, extra={"login_timeout": LOGIN_SECONDS})
    run, status = Recipe(job).execute(environment), ""
    while not status.startswith("FINISHED"):
        time.sleep(5.0)
        status = str(run.get_status())
        print(time.strftime("%H:%M:%S"), status, flush=True)
    environment.stop()
    if status != "FINISHED:COMPLETED":
        sys.exit(f"FLARE says {status}")


def flower(given: argparse.Namespace, settings: dict[str, Any]) -> None:
    from skelmix.studies import Loopback

    settings = {"num-silos": given.silos, **settings, "result": str(given.workspace / "flower.json")}
    config = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
    with Loopback(given.silos, directory=given.workspace / "flower") as fleet:
        fleet.run(given.app, config=config, timeout=given.timeout)


def show(workspace: Path) -> None:
    found = json.loads((workspace / "result.json").read_text())
    print(*found["report"], "", sep="\n")
    for record in found["rounds"]:
        opened = f"sum of {record['survivors']} of {record['cohort']} silos"
        outcome = opened if record["opened"] else f"skipped: {record['reason']}"
        print(
            f"round {record['server_round']}: {outcome}; {record['waves']} waves, {record['seconds']:.1f} s"
        )
    print(f"{found['charged']} rounds charged; accuracy", *(f"{a:.3f}" for a in found["accuracy"]))
    if (workspace / "flower.json").exists():
        plain = json.loads((workspace / "flower.json").read_text())
        flare, bare = (sum(r["seconds"] for r in rounds["rounds"]) for rounds in (found, plain))
        print(f"seconds of all rounds: FLARE {flare:.1f}, plain Flower {bare:.1f}; ratio {flare / bare:.2f}")


if __name__ == "__main__":
    main()
