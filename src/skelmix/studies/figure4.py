"""Figure 4 of the paper: sums with the discrete Gaussian mixture, DGM.

With σ rounded up to an integer, and not.
"""

from __future__ import annotations

from collections.abc import Sequence

from skelmix.studies import sum_rows, sums
from skelmix.studies.figure1 import COMMON, EPSILONS
from skelmix.studies.rows import Row
from skelmix.studies.study import Study
from skelmix.studies.sum_rows import quotients
from skelmix.studies.verdicts import Claim, judged

PANELS = {10: 4.0, 14: 64.0, 18: 1024.0}
AT_SCALE = ("dgm-paper-integer", "dgm-paper", "dgm-tight", "smm-paper", "smm-tight", "skellam", "ddg")


def cells(quick: bool, seeds: int | None) -> list[Row]:
    """The paper's three panels. quick: one ε, shorter vectors."""
    common = COMMON | {"repetitions": seeds or (1 if quick else 3)} | ({"dimension": 4096} if quick else {})
    epsilons = (4.0,) if quick else EPSILONS
    wanted = [sums.cell(line, None, None, e, **common) for line in sum_rows.CENTRAL for e in epsilons]
    for bits, scale in PANELS.items():
        wanted += [sums.cell(line, bits, scale, e, **common) for line in AT_SCALE for e in epsilons]
    return wanted


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The sentences of Appendix B.3, then what skelmix adds."""
    integer, source = "dgm-paper-integer", "Appendix B.3"
    alike = quotients(rows, integer, "smm-paper", lambda q: 0.8 < q < 1.25, lambda b, s: b > 10)
    worse = quotients(rows, integer, "smm-paper", lambda q: q > 1.1, lambda b, s: b == 10)
    tight = quotients(rows, "dgm-tight", "dgm-paper", lambda q: q <= 1)
    same = "An integer σ is the same for ε = 1, 2 and for ε = 3, 4, 5 at m = 2^10"
    return [
        judged("DGM is comparable to SMM at 2^14 and 2^18 (within 25 %)", source, alike, "mse, DGM over SMM"),
        judged("DGM is worse than SMM at 2^10 (by over 10 %)", source, worse, "mse, DGM over SMM"),
        judged(same, source, _sigmas(rows), "σ of a participant"),
        judged(
            "DGM tight is never worse than with the paper's bound", "skelmix", tight, "mse, tight over paper"
        ),
        sum_rows.agreement(rows),
    ]


def _sigmas(rows: Sequence[Row]) -> list[sum_rows.Finding]:
    integer = [row for row in rows if row["line"] == "dgm-paper-integer" and row["bits"] == 10]
    sigma = {row["epsilon"]: row["noise"] for row in integer if row["noise"] is not None}
    groups = [[e for e in group if e in sigma] for group in ((1.0, 2.0), (3.0, 4.0, 5.0))]
    whole = [group for group in groups if len(group) > 1]
    return [(f"ε = {e:g}", sigma[e], sigma[e] == sigma[group[0]]) for group in whole for e in group]


STUDY = Study(
    name="figure4",
    title="Figure 4: sums with the discrete Gaussian mixture",
    revision=2,
    settings=sums.SETTINGS,
    measures=sums.MEASURES,
    cells=cells,
    measure=sums.measure,
    draw=sum_rows.draw,
    claims=claims,
    tables=sum_rows.tables,
    words=sum_rows.words,
    borrow=("figure1",),
    seconds_per_setting=5.0,
)
