"""A whole Flower deployment on 127.0.0.1: SuperLink, SuperNodes, a run; started, ended, cleaned up.

For examples, tests and measurements. Everything listens on 127.0.0.1 without TLS; Flower's files go to a
directory of their own, telemetry and update checks are off, and every process is ended by its id.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self, TextIO

from skelmix.errors import SkelmixError
from skelmix.validation import positive, whole

STOP_SECONDS = 10.0


_CONFIG = """[superlink]
default = "loopback"

[superlink.loopback]
address = "127.0.0.1:{port}"
insecure = true
"""


class DeploymentFailed(SkelmixError):
    """A Flower process did not start, or a run did not finish in time; the message ends with its log."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


class Loopback:
    """A Flower deployment on this machine: one SuperLink and `nodes` SuperNodes, ended with the block.

    node_config: what each SuperNode knows of itself besides partition-id and num-partitions, as TOML values.
    Logs are in `directory`, a temporary one that is removed at the end unless given.

    Example: `with Loopback(nodes=3) as fleet: fleet.run(app_directory)`.
    """

    def __init__(
        self,
        nodes: int,
        *,
        node_config: str = "",
        directory: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        whole(1, nodes=nodes)
        self._stack = ExitStack()
        self.directory = directory or Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="skelmix-flower-"))
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        self._nodes, self._node_config = nodes, node_config
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        self._environment = {
            **os.environ,
            "FLWR_HOME": str(home),
            "XDG_STATE_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONUNBUFFERED": "1",
            **(environment or {}),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            link, *ports = free_ports(self._nodes + 1)
            self._start(
                "superlink",
                "flower-superlink",
                "--insecure",
                "--disable-runtime-dependency-installation",
                "--host",
                "127.0.0.1",
                "--port",
                str(link),
            )
            self._wait_for(link, "superlink")
            (self.directory / "home" / "config.toml").write_text(_CONFIG.format(port=link))
            for number, port in enumerate(ports):
                own = f"partition-id={number} num-partitions={self._nodes} {self._node_config}".strip()
                self._start(
                    f"supernode-{number}",
                    "flower-supernode",
                    "--insecure",
                    "--superlink",
                    f"127.0.0.1:{link}",
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(port),
                    "--node-config",
                    own,
                )
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def run(self, app: Path, *, config: str = "", timeout: float = 300.0, echo: TextIO | None = None) -> str:
        """Run the app in `app` to its end; what its ServerApp wrote, also to `echo` while it is written.

        Raises `DeploymentFailed` when it fails or takes longer.
        """
        self.submit(app, config=config)
        return self.wait(timeout, echo)

    def submit(self, app: Path, *, config: str = "") -> None:
        """Start a run and return at once; `wait` for it next."""
        override = ("--run-config", config) if config else ()
        self._start("run", "flwr", "run", str(app), "loopback", "--stream", *override)

    def wait(self, timeout: float, echo: TextIO | None = None) -> str:
        """Wait for the end of the submitted run; what its ServerApp wrote."""
        positive(timeout=timeout)
        end, shown, code = time.monotonic() + timeout, 0, None
        while code is None:
            with suppress(subprocess.TimeoutExpired):
                code = self.processes["run"].wait(0.5)
            if code is None and time.monotonic() > end:
                raise DeploymentFailed(f"the run did not end within {timeout:g} s\n{self.log('run')}")
            if echo is not None:
                text = self.log("run")
                print(text[shown:], end="", file=echo, flush=True)
                shown = len(text)
        del self.processes["run"]
        listed = json.loads(self._flwr("ls", "loopback", "--format", "json", timeout=60.0))
        status = str(listed["runs"][0]["status"])
        if status != "finished:completed":
            raise DeploymentFailed(f"the run ended as {status}\n{self.log('run')}")
        return self.log("run")

    def log(self, name: str) -> str:
        """What a process has written so far."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """End one process and all that it started, at once: a crash, as far as the others can see."""
        self._signal(self.processes.pop(name), signal.SIGKILL)

    def stop(self) -> None:
        """End all processes that are left, and remove the temporary directory."""
        left, self.processes = list(self.processes.values()), {}
        for process in left:
            self._signal(process, signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        for process in left:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
            self._signal(process, signal.SIGKILL)
        self._stack.close()

    def _start(self, name: str, *command: str) -> None:
        program = Path(sys.executable).parent / command[0]
        with (self.directory / f"{name}.log").open("wb") as out:
            # a session of its own: what a process starts can be ended with it, by its id
            self.processes[name] = subprocess.Popen(
                [str(program), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.directory,
                start_new_session=True,
            )

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if number is signal.SIGKILL:
            process.wait(STOP_SECONDS)

    def _alive(self, name: str) -> None:
        if self.processes[name].poll() is not None:
            raise DeploymentFailed(f"{name} has stopped\n{self.log(name)}")

    def _wait_for(self, port: int, name: str, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._alive(name)
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise DeploymentFailed(f"{name} did not answer within {seconds:g} s\n{self.log(name)}")

    def _flwr(self, *arguments: str, timeout: float) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).parent / "flwr"), *arguments],
            env=self._environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if done.returncode:
            raise DeploymentFailed(f"flwr {arguments[0]} failed\n{done.stdout}\n{done.stderr}")
        return done.stdout
