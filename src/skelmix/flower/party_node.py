"""A party's SuperNode: it runs the ready app from this installation, and no code that a server sends.

In Flower the code of a ClientApp comes with the app that somebody submits to the SuperLink. A policy would be
worth nothing if that code were run: it could read the file itself. So the SuperNode finds scripts of ours
(`party_programs`) in the place of Flower's programs for apps, and finds no other program at all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from skelmix.errors import InvalidInput, SkelmixError
from skelmix.flower.desk import POLICY_KEY
from skelmix.flower.party_programs import REFUSED
from skelmix.statistics import arrow
from skelmix.statistics.party_policy import PartyPolicy

_SCRIPT = """#!{python} -I
from skelmix.flower.party_programs import {function}

{function}()
"""
_CHECKED = "flwr-clientapp"
_CHECK_SECONDS = 120.0


def supernode(
    policy_file: Path, superlink: str, port: int, tls: tuple[str, ...]
) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a party's SuperNode; its scripts are written to the state directory.

    port: where the SuperNode talks to its own processes, on 127.0.0.1. tls: Flower's options for the
    connection, `--insecure` or `--root-certificates`.
    """
    policy_file = policy_file.resolve()
    policy = PartyPolicy.read(policy_file)
    arrow.pyarrow()  # a missing library should show here, not in the first answer
    if any(mark in str(policy_file) for mark in "\"'\\\n"):
        raise InvalidInput(f"{policy_file}: a path with quotes or backslashes cannot be passed on; rename it")
    if os.pathsep in str(policy.state):
        raise InvalidInput(f"{policy.state}: a path with {os.pathsep!r} cannot be searched; rename it")
    scripts = _write_scripts(policy.state)
    programs = Path(sys.executable).parent
    command = [
        str(programs / "flower-supernode"), *tls, "--superlink", superlink, "--host", "127.0.0.1", "--port",
        str(port), "--node-config", f'{POLICY_KEY}="{policy_file}"',
    ]  # fmt: skip
    environment = {
        **os.environ,
        "FLWR_HOME": str(policy.state / "flower"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": str(scripts),  # and nothing else, or Flower's own programs could be found behind ours
        "PYTHONUNBUFFERED": "1",
    }
    _check_scripts(scripts, environment)
    return command, environment


def _check_scripts(scripts: Path, environment: dict[str, str]) -> None:
    """Start one of them by name, as Flower does; `SkelmixError` unless it is ours that answers."""
    try:
        done = subprocess.run(
            [_CHECKED], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CHECK_SECONDS
        )
        problem = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode == 1 and problem == REFUSED:
            return
    except (OSError, subprocess.SubprocessError) as error:
        problem = str(error)
    raise SkelmixError(
        f"the party does not start: its own programs in {scripts} cannot be run ({problem[-500:]}), and no "
        "others may be; put `state` on a file system that allows programs, and install skelmix under a short "
        "path without spaces"
    )


def _write_scripts(state: Path) -> Path:
    """One script for the program that starts apps, and one for each that would run an app's code."""
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

    directory = state / "programs"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)
    functions = dict.fromkeys(TASK_TYPE_TO_COMMAND.values(), "refuse_app")
    for name, function in (functions | {"flower-superexec": "run_party_apps"}).items():
        script = directory / name
        script.write_text(_SCRIPT.format(python=sys.executable, function=function))
        script.chmod(0o700)
    return directory
