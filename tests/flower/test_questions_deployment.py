"""The guide to questions on other machines, run as written: a SuperLink and five parties on 127.0.0.1."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from skelmix.studies.fleet import free_ports

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "separate-machines.md"
AS_WRITTEN = re.compile(r"<!-- not run: here; [^>]*-->\n```console\n(.*?)```", re.DOTALL)
FILES = re.compile(r"```python\n(.*?)```", re.DOTALL)
SECONDS = 600.0  # a bound for a busy machine; a quiet one needs a fraction of it


def guide() -> tuple[str, str]:
    """The page's Python block, and all commands that it marks as run here, in their order."""
    text = GUIDE.read_text(encoding="utf-8")
    blocks = [block.replace("\\\n", " ") for block in AS_WRITTEN.findall(text)]
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    assert len(lines) == 8
    return FILES.findall(text)[0], "\n".join(lines)


def total(name: str, printed: str) -> tuple[float, float]:
    """The total of a column and its standard error, as printed."""
    found = re.search(rf"^total {name} +([\d,.]+) +([\d,.]+)", printed, re.MULTILINE)
    assert found is not None, printed
    return float(found[1].replace(",", "")), float(found[2].replace(",", ""))


def clipped_rows(directory: Path) -> np.ndarray:
    """Age and stay of all records, zero where one is missing, shortened to a norm of 120."""
    files = [path.read_text().splitlines()[1:] for path in directory.glob("hospital-*/stays.csv")]
    cells = [line.split(",") for lines in files for line in lines]
    rows = np.array([[float(row[1]), float(row[4])] if row[1] else [0.0, 0.0] for row in cells])
    return rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True) / 120)


def test_the_guide_goes_from_five_directories_to_the_answer(tmp_path):
    files, commands = guide()
    subprocess.run([sys.executable, "-c", files], cwd=tmp_path, check=True, timeout=60)
    script = f"set -e\n{commands}\n".replace("127.0.0.1:8000", "127.0.0.1:$PORT").replace(
        "--port 8000", "--port $PORT"
    )
    assert "8000" not in script
    environment = os.environ | {
        "PORT": str(free_ports(1)[0]),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(tmp_path / "flower"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
    with (tmp_path / "out.txt").open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=tmp_path, env=environment, stdout=out, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            code = shell.wait(SECONDS)
        finally:  # the SuperLink and the parties, which the guide leaves running
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(shell.pid, number)
                    time.sleep(2.0)
    printed = (tmp_path / "out.txt").read_text()
    log = (tmp_path / "hospital-1" / "log.txt").read_text()
    assert code == 0, printed + log
    counted = re.search(r"^count +([\d,]+)", printed, re.MULTILINE)
    assert counted is not None, printed + log
    assert abs(int(counted[1].replace(",", "")) - 10_000) < 6 * 6.59, "six standard errors: 2e-9"
    assert "ε = 0.9999 of 3, in 1 answer" in printed
    assert "5 of 5 parties refuse; nobody was charged; parties " in printed
    assert "column 'patient' may not be asked here" in printed
    assert "Private statistics" in (tmp_path / "report.html").read_text()
    for name, truth in zip(("age", "stay"), clipped_rows(tmp_path).sum(axis=0), strict=True):
        value, error = total(name, printed)
        assert abs(value - truth) < 6 * error
    for number in range(1, 6):
        spent = (tmp_path / f"hospital-{number}" / "state" / "spent.jsonl").read_text().splitlines()
        assert len(spent) == 3, "a header, and two charges: the refused question cost nothing"
        purposes = [json.loads(line.rpartition("\t")[0])["purpose"] for line in spent[1:]]
        assert "count; mean(age, 0..110)" in purposes[0]
        assert '"kind": "sum"' in purposes[1]
