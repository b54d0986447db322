"""Writes the measured numbers into the README, from the tables in results/. Run it after a study."""

from __future__ import annotations

import re
from pathlib import Path

from skelmix.studies.headline_numbers import brief_table

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- measured -->\n).*?(\n<!-- /measured -->)", re.DOTALL)


def filled(readme: str, results: Path = ROOT / "results") -> str:
    """The text of the README with its table of numbers as `results` has them."""
    table = brief_table(results).markdown()
    return BLOCK.sub(lambda found: f"{found[1]}{table}{found[2]}", readme)


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
