"""The command line in a process of its own, or in this one."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import pytest


def skelmix(*words: object, timeout: float = 180, **options: Any) -> subprocess.CompletedProcess[str]:
    """`skelmix words...`, with options of `subprocess.run` such as cwd and env."""
    return subprocess.run(
        [sys.executable, "-m", "skelmix", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )


@dataclass(frozen=True)
class Done:
    """What a command left: its exit code and what it wrote."""

    returncode: str | int | None
    stdout: str
    stderr: str


def in_process(*words: object) -> Done:
    """The same in this process: no new interpreter, for commands that are refused or quick."""
    from skelmix.cli import console, main

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        for name, stream in (("out", out), ("err", err)):
            patch.setattr(getattr(console, name), "_file", stream)
        with pytest.raises(SystemExit) as ended:
            main.main([str(word) for word in words])
    return Done(ended.value.code, out.getvalue(), err.getvalue())
