"""Let a program write its output to a file itself, whatever bytes it writes.

FLARE reads its applets' output through a pipe, line by line, as UTF-8. At the first byte that is none its
reader ends, the pipe fills, and the program hangs at a later line: one record that makes a decoder complain
about its name would stop the silo, and who is missing shows.
"""

from __future__ import annotations

import shlex
from pathlib import Path


def with_own_log(command: str, log: Path) -> str:
    """The command with all output appended to `log`; it runs under the same process id."""
    return shlex.join(["sh", "-c", 'exec "$@" >>"$0" 2>&1', str(log), *shlex.split(command)])
