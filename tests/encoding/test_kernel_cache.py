"""Compiled kernels are kept, also where the package's own directory takes nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import skelmix

PROGRAM = """
import json
import numpy as np
from skelmix.encoding import wrapping
out = wrapping.pack(np.arange(8, dtype=np.uint8), 5)
stats = wrapping._pack.stats
print(json.dumps({
    "file": wrapping.__file__, "packed": out.hex(), "folder": stats.cache_path,
    "hits": sum(stats.cache_hits.values()), "misses": sum(stats.cache_misses.values()),
}))
"""


def run(install: Path, home: Path) -> dict:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {
        "PYTHONPATH": str(install),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def copied(to: Path) -> Path:
    source = Path(skelmix.__file__).parent
    shutil.copytree(source, to / "skelmix", ignore=shutil.ignore_patterns("__pycache__"))
    return to


def test_a_read_only_install_keeps_its_kernels_in_the_users_cache(tmp_path):
    install, home = copied(tmp_path / "install"), tmp_path / "home"
    for folder in [install / "skelmix", *(install / "skelmix").rglob("*/")]:
        (folder / "__pycache__").touch()  # a file in its place: nothing can be stored there, not even by root
    first, second = run(install, home), run(install, home)
    assert Path(first["file"]).is_relative_to(install)
    assert Path(first["folder"]).is_relative_to(home / "cache")
    assert (first["hits"], first["misses"]) == (0, 1)
    assert (second["hits"], second["misses"]) == (1, 0)
    assert second["packed"] == first["packed"]
