"""A study small enough for tests: squares, slow on demand, and one setting that cannot be done."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from skelmix.errors import PrivacyUnattainable
from skelmix.studies.drawing import canvas, draw_line, finish, panel
from skelmix.studies.grid import Grid
from skelmix.studies.rows import Row
from skelmix.studies.study import Study, run
from skelmix.studies.verdicts import Claim, judged


def cells(quick: bool, seeds: int | None) -> list[Row]:
    return [{"x": x, "seed": seed} for x in range(2 if quick else 4) for seed in range(seeds or 1)]


def measure(cell: Row) -> Row:
    time.sleep(float(os.environ.get("STUDY_SLEEP", "0")))
    if cell["x"] == 3:
        raise PrivacyUnattainable("x = 3: cannot be done;\nchoose another")
    return {"square": cell["x"] ** 2, "threads": os.environ.get("NUMBA_NUM_THREADS"), "worker": os.getpid()}


def draw(rows: Sequence[Row], path: Path) -> list[Path]:
    figure, axes = canvas(1, 1)
    panel(axes[0][0], "squares", x="x", y="x²")
    draw_line(axes[0][0], "smm-tight", [(r["x"], r["square"], 0.1) for r in rows if r["square"] is not None])
    return finish(figure, path)


def claims(rows: Sequence[Row]) -> list[Claim]:
    found = [(f"x = {r['x']}", r["square"], r["square"] < 4) for r in rows if r["square"] is not None]
    return [judged("squares are below 4", "a test", found, "square")]


def tables(rows: Sequence[Row]) -> list[Grid]:
    return [Grid("squares", ["x", "x²"], [[str(r["x"]), str(r["square"])] for r in rows])]


STUDY = Study(
    name="squares",
    title="Squares",
    revision=1,
    settings=("x", "seed"),
    measures=("square", "threads", "worker", "note"),
    cells=cells,
    measure=measure,
    draw=draw,
    claims=claims,
    tables=tables,
)

if __name__ == "__main__":
    run(STUDY, Path(sys.argv[1]), command="a test", seeds=5)
