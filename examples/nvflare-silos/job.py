"""The FLARE job: a Flower app, with the parts that start and relay it.

python job.py DIRECTORY     writes the job there, for `nvflare job submit -j DIRECTORY/silos`
"""

from __future__ import annotations

import argparse
from pathlib import Path

from flare_parts import Controller, Executor
from nvflare.job_config.api import FedJob

APP = Path(__file__).resolve().parent.parent / "flower-silos"
START_SECONDS = 90  # for each step of starting; whole, or FLARE refuses it
SILENT_SECONDS = 90.0  # without a request after which a site is given up
GRACE_SECONDS = 86_400.0  # longer than any run: FLARE aborts a job below min_clients, after this time


def silo_job(app: Path, silos: int, settings: dict[str, str | int | float]) -> FedJob:
    """The app in `app` as a job that starts with `silos` sites; settings: those of its pyproject.toml."""
    job = FedJob(name="silos", min_clients=silos)
    controller = Controller(
        superlink_ready_timeout=float(START_SECONDS),
        configure_task_timeout=START_SECONDS,
        start_task_timeout=START_SECONDS,
        max_client_op_interval=SILENT_SECONDS,
        run_config={"num-silos": silos, **settings},
    )
    job.to_server(controller)
    job.to_server({"dead_client_grace_period": GRACE_SECONDS})
    job.to_server(str(app))
    job.to_clients(Executor(per_msg_timeout=60.0, tx_timeout=120.0))
    return job


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("directory", type=Path)
    options.add_argument("--silos", type=int, default=3)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--result", default="", help="file of the server for report, accuracy and rounds")
    given = options.parse_args()
    settings = {"num-rounds": given.rounds, "result": given.result}
    silo_job(APP, given.silos, settings).export_job(str(given.directory))


if __name__ == "__main__":
    main()
