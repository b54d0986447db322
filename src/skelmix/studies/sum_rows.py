"""The rows of a sum experiment by panel: finding them, comparing them, and reporting them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from skelmix.studies.drawing import LINES, canvas, draw_line, finish, panel
from skelmix.studies.grid import Grid, number
from skelmix.studies.rows import Row
from skelmix.studies.verdicts import Claim, judged

CENTRAL = ("gaussian-rdp", "gaussian-pld")
MIXTURES = ("smm-tight", "smm-auto", "smm-paper", "dgm-paper", "dgm-paper-integer", "dgm-tight")

Finding = tuple[str, float, bool]
Where = Callable[[int, float], bool]


def everywhere(bits: int, scale: float) -> bool:
    return True


def epsilons(rows: Sequence[Row]) -> list[float]:
    return sorted({row["epsilon"] for row in rows})


def panels(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """(bits, γ) of the panels, by modulus."""
    return sorted({(row["bits"], row["asked_scale"]) for row in rows if row["asked_scale"] is not None})


def lookup(rows: Sequence[Row], measure: str = "mse") -> Callable[[str, int, float, float], float | None]:
    """measure(line, bits, scale, ε): None for what was not measured or cannot be done.

    The central Gaussian is the same in every panel, the planner's γ in every panel of a modulus.
    """
    known = {(r["line"], r["bits"], r["asked_scale"], r["epsilon"]): r[measure] for r in rows}

    def find(line: str, bits: int, scale: float, epsilon: float) -> float | None:
        own_bits = None if line in CENTRAL else bits
        own_scale = None if line in CENTRAL or line == "smm-auto" else scale
        return known.get((line, own_bits, own_scale, epsilon))

    return find


def quotients(
    rows: Sequence[Row], ours: str, rivals: str, fine: Callable[[float], bool], where: Where = everywhere
) -> list[Finding]:
    """Findings about the quotient of the `ours` mse and that of each rival, over panels and all ε.

    Names are separated by spaces; `where` selects the panels.
    """
    mse, cases = lookup(rows), []
    for rival in rivals.split():
        for bits, scale in panels(rows):
            for epsilon in epsilons(rows) if where(bits, scale) else []:
                top, bottom = mse(ours, bits, scale, epsilon), mse(rival, bits, scale, epsilon)
                if top is not None and bottom is not None:
                    case = f"{ours} over {rival} at 2^{bits}, γ = {scale:g}, ε = {epsilon:g}"
                    cases.append((case, top / bottom, fine(top / bottom)))
    return cases


def agreement(rows: Sequence[Row]) -> Claim:
    """Whether the plans of the mixtures predicted the error that was measured."""
    cases = [
        (f"{r['line']} at 2^{r['bits']}, γ = {r['scale']:g}, ε = {r['epsilon']:g}", r["ratio"], fine)
        for r in rows
        if r["line"] in MIXTURES and r["ratio"] is not None
        for fine in (0.97 <= r["ratio"] <= 1.03,)
    ]
    text = "The plan's predicted error is within 3 % of the measured one, for every mixture"
    return judged(text, "skelmix", cases, "measured over predicted")


def tables(rows: Sequence[Row]) -> list[Grid]:
    """One table per panel: mse by mechanism and ε, and what the clip leaves of the sum."""
    mse, kept, grids = lookup(rows), lookup(rows, "kept_length"), []
    for bits, scale in panels(rows):
        body = []
        for line, look in LINES.items():
            values = [number(mse(line, bits, scale, epsilon)) for epsilon in epsilons(rows)]
            left = [kept(line, bits, scale, epsilon) for epsilon in epsilons(rows)]
            least = min((value for value in left if value is not None), default=None)
            if set(values) != {"–"}:
                body.append([look.label, *values, number(least, 3)])
        columns = ["mechanism", *(f"ε = {epsilon:g}" for epsilon in epsilons(rows)), "length kept"]
        grids.append(Grid(f"mse per coordinate, m = 2^{bits}, γ = {scale:g}", columns, body))
    return grids


def words(rows: Sequence[Row]) -> list[str]:
    """How far prediction and measurement are apart, and what the paper's clip does."""
    sentences = []
    groups: dict[str, list[float]] = {"the mixtures": [], "the other distributed mechanisms": []}
    for row in rows:
        if row["ratio"] is not None and row["line"] not in CENTRAL:
            list(groups.values())[row["line"] not in MIXTURES].append(row["ratio"])
    parts = [
        f"{min(ratios):.3f} to {max(ratios):.3f} over {len(ratios)} rows of {group}"
        for group, ratios in groups.items()
        if ratios
    ]
    if parts:
        sentences.append(f"Measured over predicted error: {'; '.join(parts)}.")
    shrunk: dict[float, list[float]] = {}
    for row in rows:
        if row["line"] == "smm-paper" and row["kept_length"] is not None:
            shrunk.setdefault(row["asked_scale"], []).append(row["kept_length"])
    if shrunk:
        left = ", ".join(f"{min(kept):.1%} at γ = {scale:g}" for scale, kept in sorted(shrunk.items()))
        sentences.append(f"The paper's clip leaves of the true sum's length {left}.")
    return sentences


def draw(rows: Sequence[Row], path: Path) -> list[Path]:
    """One column per modulus, the smaller γ on top. cpSGD is off the scale, as in the paper."""
    by_bits: dict[int, list[float]] = {}
    for bits, scale in panels(rows):
        by_bits.setdefault(bits, []).append(scale)
    depth = max(map(len, by_bits.values()))
    figure, axes = canvas(depth, len(by_bits))
    mse, letters = lookup(rows), iter("abcdefghijklmnop")
    for place, column in ((place, column) for place in range(depth) for column in range(len(by_bits))):
        at, bits = axes[place][column], list(by_bits)[column]
        if place >= len(by_bits[bits]):
            at.axis("off")
            continue
        scale = by_bits[bits][place]
        panel(at, f"({next(letters)}) m = 2$^{{{bits}}}$, γ = {scale:g}", log=True)
        at.set_xlabel("ε" if place == depth - 1 else "", fontsize=9)
        at.set_ylabel("mse" if column == 0 else "", fontsize=9)
        at.set_xticks(epsilons(rows))
        for line in LINES:
            points = [(e, mse(line, bits, scale, e)) for e in epsilons(rows) if line != "cpsgd"]
            draw_line(at, line, [(e, y, 0.0) for e, y in points if y is not None])
    return finish(figure, path)
