"""The log of a silo under FLARE: no byte that its app prints can stop it."""

import runpy
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "nvflare-silos" / "own_log.py"
#: prints a name in Latin-1, then more than any pipe holds, as one long run does
PRINTS = "import os; os.write(1, b'caf\\xe9\\n'); [os.write(2, b'x' * 1023 + b'\\n') for _ in range(300)]"


@pytest.fixture
def with_own_log():
    return runpy.run_path(str(EXAMPLE))["with_own_log"]


def started(command):
    """As FLARE starts an applet; but nobody reads the pipe, as after FLARE's reader has ended."""
    return subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_a_program_that_nobody_reads_ends_and_its_output_is_kept(with_own_log, tmp_path):
    log = tmp_path / "a log's name.txt"
    log.write_text("before\n")
    command = shlex.join([sys.executable, "-c", PRINTS])
    with started(with_own_log(command, log)) as program:
        assert program.wait(60) == 0
        assert program.stdout.read() == b""
    assert log.read_bytes() == b"before\ncaf\xe9\n" + (b"x" * 1023 + b"\n") * 300
    with started(command) as hangs:  # a control: without a log of its own it does not end
        assert hangs.stdout.read(5) == b"caf\xe9\n"
        with pytest.raises(subprocess.TimeoutExpired):
            hangs.wait(3)
        hangs.kill()


def test_it_is_ended_like_the_program_itself(with_own_log, tmp_path):
    words = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
    with started(with_own_log(shlex.join(words), log := tmp_path / "log")) as program:
        while not log.exists() or "here" not in log.read_text():
            time.sleep(0.05)
        program.terminate()
        assert program.wait(60) == -signal.SIGTERM
