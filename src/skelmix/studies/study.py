"""Runs a study: measures the rows that are missing, two at a time, then draws, judges and reports."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from skelmix.errors import PrivacyUnattainable
from skelmix.studies.grid import Grid
from skelmix.studies.rows import ResultFile, Row, commits_of, key, read
from skelmix.studies.verdicts import Claim

_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Study:
    """One figure or table: which settings, how each is measured, and what is made of the rows.

    cells(quick, seeds): the settings to measure, the most valuable first; seeds=None means the study's own
    number. measure(cell): a function of a module (it runs in another process) that gives the measures of
    one cell. `PrivacyUnattainable` becomes a row with the reason in its `note`. revision is part of every
    row's key: raise it when `measure` changes what it computes. borrow: studies whose columns are all known
    here, and whose rows serve here as well. seconds_per_setting: of one core, typically, in the whole study.
    """

    name: str
    title: str
    revision: int
    settings: tuple[str, ...]
    measures: tuple[str, ...]
    cells: Callable[[bool, int | None], list[Row]]
    measure: Callable[[Row], Row]
    draw: Callable[[Sequence[Row], Path], list[Path]]
    claims: Callable[[Sequence[Row]], list[Claim]]
    tables: Callable[[Sequence[Row]], list[Grid]]
    words: Callable[[Sequence[Row]], list[str]] = lambda rows: []
    workers: int = 2
    borrow: tuple[str, ...] = ()
    seconds_per_setting: float = 60.0


@dataclass(frozen=True)
class Outcome:
    """What a study came to; `missing` counts the cells that no row answers."""

    study: Study
    rows: list[Row]
    missing: int
    claims: list[Claim]
    csv: Path
    figures: list[Path]
    report: Path

    def verdict(self, claim: Claim) -> str:
        """The verdict, which is preliminary while rows are missing: a claim may yet break."""
        return claim.verdict + (" so far" if self.missing and claim.holds else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "rows": self.rows,
            "missing": self.missing,
            "claims": [claim.to_dict() for claim in self.claims],
            "csv": str(self.csv),
            "figures": [str(path) for path in self.figures],
            "report": str(self.report),
        }


def run(
    study: Study,
    output: Path,
    *,
    command: str,
    quick: bool = False,
    seeds: int | None = None,
    workers: int | None = None,
    measure: bool = True,
    on_start: Callable[[int, int], None] = lambda missing, total: None,
    on_row: Callable[[int, int, Row], None] = lambda done, total, row: None,
) -> Outcome:
    """Measure what is missing in `output/<name>.csv`, then write the figures and `output/<name>.md`.

    quick: the study's small version, kept in files of its own. workers=0 measures in this process.
    measure=False only draws and judges the rows that are there. on_start(missing, total) is called before
    anything is measured, on_row(done, total, row) after each new row.
    """
    name = f"{study.name}-quick" if quick else study.name
    path = output / f"{name}.csv"
    settings = ("revision", *study.settings)
    cells = [{"revision": study.revision, **cell} for cell in study.cells(quick, seeds)]
    if measure:
        with ResultFile(path, settings, study.measures) as file:
            missing = [cell for cell in cells if key(cell, settings) not in file.rows]
            missing = _borrow(study, output, quick, file, missing)
            if missing:
                file.announce(command)
            on_start(len(missing), len(cells))
            done = len(cells) - len(missing)
            for row in _measured(study, missing, study.workers if workers is None else workers):
                file.append(row)
                done += 1
                on_row(done, len(cells), row)
            measured = file.rows
    else:
        _, measured = read(path, settings)
    rows = [measured[key(cell, settings)] for cell in cells if key(cell, settings) in measured]
    output.mkdir(parents=True, exist_ok=True)
    figures = study.draw(rows, output / name) if rows else []
    outcome = Outcome(
        study, rows, len(cells) - len(rows), study.claims(rows), path, figures, output / f"{name}.md"
    )
    outcome.report.write_text(markdown(outcome, command))
    return outcome


def markdown(outcome: Outcome, command: str) -> str:
    """The report of a study: pictures, claims, tables, and the command that makes it."""
    study = outcome.study
    parts = [
        f"# {study.title}",
        "",
        f"Made by `{command}`; every number is in [{outcome.csv.name}]({outcome.csv.name}).",
        "",
    ]
    if outcome.missing:
        parts += [
            f"**{outcome.missing} of {outcome.missing + len(outcome.rows)} settings are not measured yet.**",
            "",
        ]
    for path in outcome.figures:
        if path.suffix == ".png":
            parts += [f"![{study.title}]({path.name})", ""]
    for sentence in study.words(outcome.rows):
        parts += [sentence, ""]
    parts += ["## The claims, judged by these numbers", ""]
    parts += ["| claim | from | verdict | numbers |", "|---|---|---|---|"]
    for claim in outcome.claims:
        cells = (claim.text, claim.source, f"**{outcome.verdict(claim)}**", claim.numbers)
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    parts += ["", "## The numbers", ""]
    for grid in study.tables(outcome.rows):
        parts += [grid.markdown(), ""]
    return "\n".join(parts).rstrip() + "\n"


def _borrow(study: Study, output: Path, quick: bool, file: ResultFile, missing: list[Row]) -> list[Row]:
    """Copy rows that another study has measured with the same settings, under the commits that measured them.

    Returns what is still missing.
    """
    for name in study.borrow:
        source = output / f"{name}{'-quick' if quick else ''}.csv"
        columns, rows = read(source, file.settings)
        if not set(columns) <= set(file.columns):
            continue  # what is measured here, and not there, stays empty
        places = [place for cell in missing if (place := key(cell, file.settings)) in rows]
        commits = commits_of(source, file.settings) if places else {}
        for measured_by, group in groupby(sorted(places, key=lambda at: commits[at] or ""), commits.get):
            file.announce_copies(f"skelmix reproduce {name}", measured_by, source)
            for place in group:
                file.append(rows[place])
        missing = [cell for cell in missing if key(cell, file.settings) not in file.rows]
    return missing


def _measured(study: Study, cells: Sequence[Row], workers: int) -> Iterator[Row]:
    """Rows as they are finished: in the order of `cells`, except those measured side by side."""
    if workers == 0 or not cells:
        for cell in cells:
            yield _measure_one(study.measure, cell)
        return
    with _one_thread_each():
        pool = ProcessPoolExecutor(
            max_workers=workers, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent
        )
        try:
            waiting: list[Future[Row]] = [pool.submit(_measure_one, study.measure, cell) for cell in cells]
            for future in as_completed(waiting):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _measure_one(measure: Callable[[Row], Row], cell: Row) -> Row:
    try:
        return {**cell, **measure(cell)}
    except PrivacyUnattainable as error:
        return {**cell, "note": " ".join(str(error).split())}


def _end_with_parent() -> None:
    """End this worker when its study is killed; otherwise it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started in this block compute with one thread each."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old
