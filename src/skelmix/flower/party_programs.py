"""What a party's SuperNode runs in place of Flower's programs for apps.

Flower starts a program for each message, which loads the code that came with the app. Ours loads the party's
own app once, and forks a process for each message: no code from outside, and no seconds of loading either.
(`skelmix.noise.entropy` gives every forked process randomness of its own.) All other programs refuse.
"""

from __future__ import annotations

import os
import signal
import traceback
from importlib import import_module
from typing import Any

from skelmix.errors import SkelmixError

REFUSED = "this party answers questions with its own installation of skelmix: other apps are refused"


def refuse_app() -> None:
    """Stand in for Flower's programs that run an app's code: a party runs none of it."""
    raise SystemExit(REFUSED)


def run_party_apps() -> None:
    """Stand in for `flower-superexec`: hand each message to our app, never run code that came with it."""
    from flwr.supercore.cli import flower_superexec

    runtime = import_module("flwr.supernode.runtime.run_clientapp")
    executor = import_module("flwr.supercore.superexec.executor.subprocess_executor")
    app = import_module("skelmix.flower.question_client").app
    _replace(runtime, "install_from_fab", lambda *_, **__: None)
    _replace(runtime, "get_load_client_app_fn", lambda *_, **__: lambda *_: app)
    _replace(runtime, "install_app_dependencies", _no_dependencies)
    _replace(executor.SubprocessExecutor, "launch", _launch)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forked processes
    flower_superexec()


def _launch(_: Any, spec: Any) -> Any:
    """Answer one message in a forked process."""
    from flwr.supercore.constant import TaskType
    from flwr.supercore.superexec.executor import LaunchResult
    from flwr.supercore.tls import validate_and_resolve_root_certificates

    if spec.task_type is not TaskType.CLIENT_APP or spec.runtime_dependency_install:
        return LaunchResult.failed(REFUSED)
    if os.fork() == 0:
        try:
            import_module("flwr.supernode.runtime.run_clientapp").run_clientapp(
                spec.runtime_api_address,
                spec.token,
                spec.insecure,
                validate_and_resolve_root_certificates(spec.root_certificates_path, spec.insecure),
                spec.parent_pid,
            )
        except Exception:
            traceback.print_exc()  # to the party's own log
        finally:
            os._exit(0)
    return LaunchResult.accepted()


def _no_dependencies(*_: object, **__: object) -> None:
    raise SkelmixError("a party installs nothing that a server asks for")


def _replace(owner: Any, name: str, value: Any) -> None:
    """Replace a function of Flower; fail if this version lacks it: better no answer than foreign code."""
    if not hasattr(owner, name):
        raise SkelmixError(f"this version of Flower has no {name}: install flwr 1.41, then start again")
    setattr(owner, name, value)
