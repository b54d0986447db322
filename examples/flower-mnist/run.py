"""Start a SuperLink and SuperNodes on 127.0.0.1, run this app once, show its output, stop everything.

    python run.py --clients 3 --rounds 3

Nothing listens on another interface, Flower's files go to a temporary directory, telemetry is off.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from skelmix.studies import Loopback


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--clients", type=int, default=3)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--epsilon", type=float, default=8.0)
    options.add_argument("--timeout", type=float, default=900.0, help="seconds until the run is given up")
    options.add_argument("--set", default="", help="more of the app's settings, say 'bits=12 clip-norm=0.5'")
    given = options.parse_args()
    config = (
        f"num-clients={given.clients} num-rounds={given.rounds} epsilon={given.epsilon} {given.set}".strip()
    )
    with Loopback(given.clients) as fleet:
        fleet.run(Path(__file__).parent, config=config, timeout=given.timeout, echo=sys.stdout)


if __name__ == "__main__":
    main()
