"""The analyst's side: submit the ready app with one question to a SuperLink, and take its result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix import __version__
from skelmix.errors import InvalidInput, PolicyViolation, RoundFailed
from skelmix.flower.question_server import read_result, unpacked
from skelmix.flower.records import POLICY_PREFIX
from skelmix.planning import Plan
from skelmix.validation import positive

_APP = """[project]
name = "skelmix-question"
version = "{version}"
description = "One question to all parties, answered by secure aggregation with differential privacy"
license = "Apache-2.0"
dependencies = ["skelmix[flower]"]

[tool.flwr.app]
publisher = "skelmix"

[tool.flwr.app.components]
serverapp = "skelmix.flower.question_server:app"
clientapp = "skelmix.flower.question_client:app"

[tool.flwr.app.config]
plan = {plan}
question = {question}
seconds = {seconds}
"""

_CONFIG = """[superlink]
default = "parties"

[superlink.parties]
address = {address}
{security}
"""


@dataclass(frozen=True)
class SuperLink:
    """How to reach a SuperLink.

    address: host:port, or the name of a connection in the analyst's own Flower configuration. certificates:
    the file of the certificate that the SuperLink's is checked with. insecure: no TLS, for 127.0.0.1 only.
    """

    address: str
    certificates: Path | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.insecure and self.address.rpartition(":")[0] not in ("127.0.0.1", "localhost", "[::1]"):
            raise InvalidInput(
                f"--insecure with {self.address}: only on 127.0.0.1; elsewhere use TLS, --root-certificates"
            )

    @property
    def node_options(self) -> tuple[str, ...]:
        """The same for `flower-supernode`."""
        if self.insecure:
            return ("--insecure",)
        return () if self.certificates is None else ("--root-certificates", str(self.certificates.resolve()))

    def configured(self, home: Path) -> tuple[str, dict[str, str]]:
        """The name of the connection for `flwr`, and the environment in which it is known."""
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        if ":" not in self.address:
            return self.address, {**os.environ, **quiet}
        security = "insecure = true" if self.insecure else ""
        if self.certificates is not None:
            security = f"root-certificates = {_toml(str(self.certificates.resolve()))}"
        text = _CONFIG.format(address=_toml(self.address), security=security)
        (home / "config.toml").write_text(text, encoding="utf-8")
        return "parties", {**os.environ, **quiet, "FLWR_HOME": str(home)}


def ask_superlink(
    plan: Plan, question: str, superlink: SuperLink, *, seconds: float = 300.0
) -> NDArray[np.float64]:
    """The decoded noisy sum over all parties; each call is a release, and costs every party its ε.

    seconds: how long to wait for the parties in each phase. `PolicyViolation` when parties refuse, with their
    reasons; `RoundFailed` when some do not answer.
    """
    positive(seconds=seconds)
    with ExitStack() as stack:
        home, app = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        (app / "pyproject.toml").write_text(
            _APP.format(
                version=__version__,
                plan=_toml(plan.to_json()),
                question=_toml(question),
                seconds=float(seconds),
            ),
            encoding="utf-8",
        )
        name, environment = superlink.configured(home)
        printed = _flwr("run", str(app), name, "--stream", environment=environment, seconds=6 * seconds)
    return _total(read_result(printed), printed)


def _total(result: dict[str, Any] | None, printed: str) -> NDArray[np.float64]:
    if result is None:
        raise RoundFailed(f"the run ended without a result; the SuperLink said:\n{printed[-2000:]}")
    if "total" in result:
        return unpacked(str(result["total"]))
    refusals = {str(node): str(reason) for node, reason in result.get("refusals", {}).items()}
    refused = bool(refusals) and all(reason.startswith(POLICY_PREFIX) for reason in refusals.values())
    problem = "; ".join([f"nothing was released: {result.get('failed')}", *_reasons(refusals)])
    raise PolicyViolation(problem) if refused else RoundFailed(problem)


def _reasons(refusals: dict[str, str]) -> list[str]:
    """Each reason once, with the parties that gave it."""
    parties: dict[str, list[str]] = {}
    for node, reason in refusals.items():
        parties.setdefault(reason.removeprefix(POLICY_PREFIX), []).append(node)
    return [f"part{'y' if len(who) == 1 else 'ies'} {', '.join(who)}: {why}" for why, who in parties.items()]


def _flwr(*arguments: str, environment: dict[str, str], seconds: float) -> str:
    program = Path(sys.executable).parent / "flwr"
    try:
        done = subprocess.run(
            [str(program), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise RoundFailed(
            f"no answer within {seconds:g} s: the run may still be going on; `flwr ls` lists runs. "
            "Parties that answered keep the charge"
        ) from error
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        raise RoundFailed(f"flwr {arguments[0]} failed; is the SuperLink there?\n{printed[-2000:]}")
    return printed


def _toml(text: str) -> str:
    """Text as a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
