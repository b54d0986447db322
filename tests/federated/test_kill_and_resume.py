"""A real SIGKILL, twice: every round that was started is charged, and the run ends at its budget."""

import os
import signal
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def start(directory):
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, str(TESTS / "helpers/training_process.py"), str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def rounds_until_killed(process, after):
    """Kill without warning once the process has printed `after` rounds; everything it printed."""
    printed = []
    for line in process.stdout:
        printed.append(line.split())
        if line.strip() == str(after):
            os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    return [int(words[0]) for words in printed if words[0].isdigit()]


def test_killed_training_resumes_with_every_started_round_charged_and_stops_at_the_budget(tmp_path):
    finished = rounds_until_killed(start(tmp_path), after=8)
    for stop in (18, 28):
        process = start(tmp_path)
        word, position, charged = process.stdout.readline().split()
        assert word == "resumed"
        assert position == charged
        assert int(charged) >= finished[-1]
        finished = rounds_until_killed(process, after=stop)
        assert finished[0] == int(charged) + 1  # no round is run twice
    last = start(tmp_path)
    words = last.communicate()[0].split("\n")
    assert last.returncode == 0
    assert "done 40" in words
    assert len((tmp_path / "ledger.jsonl").read_bytes().splitlines()) == 41  # a header and 40 rounds
