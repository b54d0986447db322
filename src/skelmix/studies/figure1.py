"""Figure 1 of the paper: the error of a sum of 100 vectors.

Ten panels, every mechanism, SMM with two bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skelmix.studies import sum_rows, sums
from skelmix.studies.rows import Row
from skelmix.studies.study import Study
from skelmix.studies.sum_rows import quotients
from skelmix.studies.verdicts import Claim, judged

SCALES = {10: (4.0, 8.0), 12: (16.0, 32.0), 14: (64.0, 128.0), 16: (256.0, 512.0), 18: (1024.0, 2048.0)}
EPSILONS = (1.0, 2.0, 3.0, 4.0, 5.0)
AT_SCALE = ("smm-tight", "smm-paper", "dgm-paper", "skellam", "ddg", "cpsgd")
COMMON: dict[str, Any] = {"delta": 1e-5, "participants": 100, "dimension": 65_536, "radius": 1.0}


def cells(quick: bool, seeds: int | None) -> list[Row]:
    """Few bits first. quick: two panels, one ε, shorter vectors."""
    common = COMMON | {"repetitions": seeds or (1 if quick else 3)} | ({"dimension": 4096} if quick else {})
    epsilons = (4.0,) if quick else EPSILONS
    wanted = [sums.cell(line, None, None, e, **common) for line in sum_rows.CENTRAL for e in epsilons]
    for bits, scales in SCALES.items():
        if quick and bits not in (10, 18):
            continue
        wanted += [sums.cell("smm-auto", bits, None, e, **common) for e in epsilons]
        for scale in scales[:1] if quick else scales:
            wanted += [sums.cell(line, bits, scale, e, **common) for line in AT_SCALE for e in epsilons]
    return wanted


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The sentences of Section 6.1, then what skelmix adds."""

    def wide(bits: int, scale: float) -> bool:
        return scale >= 512

    few = quotients(rows, "smm-paper", "skellam ddg cpsgd", lambda q: q < 1, lambda b, s: b <= 14)
    middle = quotients(rows, "smm-paper", "skellam ddg", lambda q: 2 / 3 < q < 1.5, lambda b, s: s == 256)
    worse = quotients(rows, "smm-paper", "skellam ddg", lambda q: 1 < q < 1.5, wide)
    close = [f for line in ("skellam", "ddg") for f in quotients(rows, line, "gaussian-rdp", _near, wide)]
    alike = quotients(rows, "skellam", "ddg", _near)
    source, quotient = "Section 6.1", "mse over the rival's"
    return [
        judged("SMM beats DDG, Skellam and cpSGD at m = 2^10, 2^12 and 2^14", source, few, quotient),
        judged("SMM is comparable to DDG and Skellam at γ = 256 (factor 1.5)", source, middle, quotient),
        judged(
            "SMM is slightly worse (up to half) than DDG and Skellam at γ >= 512", source, worse, quotient
        ),
        judged(
            "DDG and Skellam are within 10 % of the central Gaussian at γ >= 512", source, close, quotient
        ),
        judged("DDG and Skellam are alike in every panel (within 10 %)", source, alike, quotient),
        judged("cpSGD's error is above 1e4 in every panel", source, _cpsgd(rows, "mse"), "mse"),
        judged("... counting its noise before the modulus", source, _cpsgd(rows, "predicted_noise"), "noise"),
        *_beyond(rows),
    ]


def _near(quotient: float) -> bool:
    return 1 / 1.1 < quotient < 1.1


def _cpsgd(rows: Sequence[Row], measure: str) -> list[sum_rows.Finding]:
    measured = [row for row in rows if row["line"] == "cpsgd" and row[measure] is not None]
    return [
        (f"2^{r['bits']}, γ = {r['asked_scale']:g}, ε = {r['epsilon']:g}", r[measure], r[measure] > 1e4)
        for r in measured
    ]


def _beyond(rows: Sequence[Row]) -> list[Claim]:
    auto = quotients(rows, "smm-auto", "gaussian-rdp", lambda q: q <= 1.03, lambda b, s: s == SCALES[b][0])
    own = quotients(rows, "smm-tight", "gaussian-rdp", lambda q: q <= 1.25)
    better = quotients(rows, "smm-tight", "smm-paper", lambda q: q <= 1)
    central = "mse over that of the central Gaussian, Rényi accounting as in the paper"
    return [
        judged("SMM tight, planner's γ: at most 1.03 times the central error", "skelmix", auto, central),
        judged("SMM tight, the paper's γ: at most 1.25 times the central error", "skelmix", own, central),
        judged(
            "SMM tight is never worse than SMM with the paper's bound", "skelmix", better, "tight over paper"
        ),
        sum_rows.agreement(rows),
    ]


STUDY = Study(
    name="figure1",
    title="Figure 1: error of a sum of 100 vectors",
    revision=2,
    settings=sums.SETTINGS,
    measures=sums.MEASURES,
    cells=cells,
    measure=sums.measure,
    draw=sum_rows.draw,
    claims=claims,
    tables=sum_rows.tables,
    words=sum_rows.words,
    seconds_per_setting=5.0,
)
