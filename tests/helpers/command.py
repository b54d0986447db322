"""The command line in a process of its own."""

import subprocess
import sys


def skelmix(*words, **options):
    """`skelmix words...`, with options of `subprocess.run` such as cwd and env."""
    return subprocess.run(
        [sys.executable, "-m", "skelmix", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=180,
        **options,
    )
