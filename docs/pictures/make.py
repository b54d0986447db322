"""Draws the pictures of the documentation into docs/assets: `python docs/pictures/make.py [name ...]`.

Without names all of them. The outputs are committed: building the site draws nothing.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
BLUE, ORANGE, GREEN, PINK, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8a8a8a", "#222222"
plt.rcParams |= {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "skelmix",
    "savefig.facecolor": "white",
}


def save(figure: Any, name: str) -> None:
    """Write the picture without the date, so that drawing it again gives the same file."""
    figure.savefig(
        ASSETS / name, dpi=150, bbox_inches="tight", metadata={"Date": None} if name.endswith("svg") else None
    )
    plt.close(figure)


def _box(axes: Any, x: float, y: float, w: float, h: float, title: str, text: str, colour: str) -> None:
    axes.add_patch(
        FancyBboxPatch((x, y), w, h, boxstyle="round,pad=0.04", facecolor=colour + "22", edgecolor=colour)
    )
    axes.text(x + w / 2, y + h * 0.68, title, ha="center", va="center", fontsize=12, weight="bold", color=INK)
    axes.text(x + w / 2, y + h * 0.28, text, ha="center", va="center", fontsize=11, color=INK)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], **style: Any) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=14, **({"color": INK, "linewidth": 1.3} | style)
        )
    )


def pipeline() -> None:
    """One vector's way: the participant's steps, the secure sum, the aggregator's steps."""
    figure, axes = plt.subplots(figsize=(9.2, 4.6))
    axes.set(xlim=(-0.1, 9.3), ylim=(-0.75, 4.1))
    axes.axis("off")
    steps = [
        ("rotate", "coordinates\nall alike"),
        ("clip", "‖γg‖₂ ≤ γΔ"),
        ("round", "⌊x⌋ or ⌊x⌋+1,\nno bias"),
        ("add noise", "Sk(λ, λ),\nexact"),
        ("wrap", "mod 2^b:\nb bits"),
    ]
    axes.text(0, 3.85, "each participant", fontsize=12, color=BLUE, weight="bold")
    for place, (title, text) in enumerate(steps):
        _box(axes, 1.88 * place, 2.5, 1.5, 1.1, title, text, BLUE)
        if place:
            _arrow(axes, (1.88 * place - 0.34, 3.05), (1.88 * place - 0.04, 3.05))
    _box(
        axes, 5.64, 0.25, 3.38, 1.2, "secure aggregation", "Σ z mod 2^b, and only the sum;\nno sum below the threshold", GREEN
    )  # fmt: skip
    for shift in (-0.5, 0.0, 0.5):
        _arrow(axes, (8.27 + shift * 0.6, 2.45), (7.6 + shift, 1.55), color=GREEN)
    axes.text(8.75, 1.95, "masked", fontsize=11, color=GREEN)
    axes.text(0, 1.68, "the aggregator", fontsize=12, color=ORANGE, weight="bold")
    back = [("rotate back", "divide by γ"), ("unwrap", "centred")]
    for place, (title, text) in enumerate(back):
        _box(axes, 1.88 * place, 0.3, 1.5, 1.1, title, text, ORANGE)
    _arrow(axes, (5.58, 0.85), (3.44, 0.85))
    _arrow(axes, (1.84, 0.85), (1.56, 0.85))
    axes.text(
        0, -0.45, "Σ g + noise: the estimate of the sum, (ε, δ)-private for every participant", fontsize=12, color=INK
    )  # fmt: skip
    _arrow(axes, (0.75, 0.22), (0.75, -0.2))
    save(figure, "pipeline.svg")


def coordinate_law() -> None:
    """The mixture of two shifted Skellam laws against the normal law, at three noise levels."""
    from skelmix.noise.laws import Skellam

    x, figure = 0.3, plt.figure(figsize=(9.2, 3.3), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, rate in zip(panels, (1, 8, 60), strict=True):
        law = Skellam(rate)
        reach = int(4 * np.sqrt(2 * rate)) + 1
        k = np.arange(-reach, reach + 2)
        mixture = (1 - x) * law.pmf(k) + x * law.pmf(k - 1)
        at = np.linspace(-reach, reach + 1, 500)
        normal = np.exp(-((at - x) ** 2) / (4 * rate)) / np.sqrt(4 * np.pi * rate)
        axes.bar(k, mixture, width=0.8, color=BLUE, alpha=0.45, label="x rounded, plus Skellam")
        axes.plot(at, normal, color=ORANGE, linewidth=1.6, label="normal, same noise variance")
        axes.axvline(x, color=INK, linewidth=0.9, linestyle=":")
        axes.set(title=f"Λ = {rate}", xlabel="integer", yticks=[], ylim=(0, 1.12 * normal.max()))
        axes.spines["left"].set_visible(False)
    panels[0].text(x + 0.2, panels[0].get_ylim()[1], f"x = {x}", fontsize=10, va="top")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    save(figure, "coordinate_law.png")


def kappa() -> None:
    """κ of the certified code over the Gaussian's α/(4Λ)."""
    from skelmix.accounting.rdp.kappa import kappa as certified
    from skelmix.noise.laws import Skellam

    orders = (2, 4, 8, 16, 32)
    rates = (2, 4, 8, 16, 32, 64, 128, 256, 1024)
    found = np.array([certified(Skellam(rate), 1.0, orders) for rate in rates])
    figure, axes = plt.subplots(figsize=(6.6, 4), layout="constrained")
    for place, order in enumerate(orders):
        quotient = found[:, place] / (order / (4 * np.array(rates)))
        axes.plot(
            rates, quotient, marker="o", markersize=4, color=plt.cm.viridis(place / 5), label=f"α = {order}"
        )
    axes.axhline(1, color=GREY, linewidth=0.9, linestyle="--")
    axes.text(rates[-1], 0.955, "the Gaussian", ha="right", fontsize=10, color=GREY)
    axes.set(
        xscale="log", xlabel="Λ, noise of the sum (variance 2Λ)", ylabel="κ over α/(4Λ)", ylim=(0.93, 2.2)
    )
    axes.set_xticks(rates, [f"{rate}" for rate in rates])
    axes.minorticks_off()
    axes.legend(frameon=False, title="order")
    save(figure, "kappa.png")


def error_against_bits() -> None:
    """Predicted error over the central Gaussian's, every mechanism at its own best scale, in the paper's
    training setting."""
    from skelmix.errors import SkelmixError
    from skelmix.planning import Cohort, PrivacyTarget, plan

    widths = (2, 3, 4, 5, 6, 7, 8, 10, 12)
    lines = [
        ("SMM, tight bound", "smm", "tight", BLUE, "o"),
        ("DGM, tight bound", "dgm", "tight", GREEN, "s"),
        ("SMM, paper's bound", "smm", "paper", ORANGE, "^"),
        ("Skellam", "skellam", "paper", PINK, "D"),
        ("DDG", "ddg", "paper", INK, "v"),
        ("cpSGD", "cpsgd", "tight", "#999933", "x"),
    ]
    silent: list[str] = []
    figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    for label, mechanism, bound, colour, marker in lines:
        points = []
        for bits in widths:
            try:
                chosen = plan(
                    PrivacyTarget(3.0, 1e-5), dimension=63_610, bits=bits, rounds=1_000,
                    mechanism=mechanism, bound=bound, alignment=0.02, cohort=Cohort(240, 60_000),
                )  # fmt: skip
            except SkelmixError as error:
                print(f"{label}, {bits} bits: {error}")
                continue
            points.append((bits, chosen.predicted.effective_mse / chosen.central_gaussian_mse))
            print(f"{label}, {bits} bits: {points[-1][1]:.4f} ({chosen.report.bound})", flush=True)
        silent += [] if points else [label]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=5, label=label)
    axes.axhline(1, color=GREY, linewidth=0.9, linestyle="--")
    axes.text(2, 0.94, "central Gaussian, best accounting", fontsize=10, color=GREY, va="top")
    if silent:
        told = f"{', '.join(silent)}: more bits than these"
        axes.text(widths[-1], 2.6, told, fontsize=10, color=GREY, ha="right")
    axes.set(
        yscale="log",
        xlabel="bits per coordinate",
        ylabel="predicted error of the sum,\nover the central Gaussian's",
        title="ε = 3, δ = 1e-5, d = 63,610, 240 of 60,000, 1,000 rounds, alignment 0.02",
    )
    axes.title.set_fontsize(10)
    axes.set_xticks(widths)
    axes.set_ylim(0.85, 9)
    axes.set_yticks((1, 1.5, 2, 3, 4, 6, 8), ("1", "1.5", "2", "3", "4", "6", "8"))
    axes.minorticks_off()
    axes.legend(frameon=False)
    save(figure, "error_against_bits.png")


def trade_off() -> None:
    """Type II against type I error of one release of 6-bit training, with its certificates and the Gaussian.

    The release is exact but for the grid: the privacy loss of 65,536 equal coordinates, convolved.
    """
    from scipy.special import ndtr, ndtri

    from skelmix.accounting.gaussian import flat_certificate, gdp_certificate
    from skelmix.noise.laws import Skellam

    law, radius, dimension, slack = Skellam(29.8), 12.0, 65_536, 1e-10
    x = radius / np.sqrt(dimension)
    certificates = {
        "gdp": gdp_certificate(law, radius, dimension, slack),
        "flat": flat_certificate(law, radius, 5 * x, dimension, slack),
    }
    grid, cells = 2e-5, 2**20
    k = np.arange(-90, 91)
    without, with_it = law.pmf(k), (1 - x) * law.pmf(k) + x * law.pmf(k - 1)
    loss = np.log(with_it / without) / grid
    cell = np.floor(loss).astype(int)
    low, high = np.exp(cell * grid), np.exp((cell + 1) * grid)
    up = (with_it / without - low) / (high - low)  # split so that both laws keep their mass
    mass = np.zeros(cells)  # tilted half way between the laws: both tails keep their digits
    np.add.at(mass, cell % cells, without * (1 - up) * np.sqrt(low))
    np.add.at(mass, (cell + 1) % cells, without * up * np.sqrt(high))
    summed = np.maximum(np.fft.fftshift(np.fft.irfft(np.fft.rfft(mass) ** dimension, cells)), 0)
    half = np.exp((np.arange(cells) - cells // 2) * grid / 2)
    first, second = np.cumsum((summed / half)[::-1])[::-1], np.cumsum(summed * half)
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 4.3), layout="constrained")
    a = ndtr(np.linspace(-6, 6, 400))
    curves = [
        ("Gaussian of the same variance", radius / np.sqrt(law.variance), GREY, (0, (1, 1))),
        ("flat certificate", certificates["flat"].mu, ORANGE, "--"),
        ("gdp certificate", certificates["gdp"].mu, GREEN, "-."),
    ]
    misses, alarms = second[:-1], first[1:]
    seen = (alarms > 1e-7) & (misses > 1e-7)
    release = {"color": BLUE, "linewidth": 2.6, "alpha": 0.55, "label": "the release itself"}
    panels[0].plot(alarms, misses, **release)
    panels[1].plot(alarms[seen], -ndtri(alarms[seen]) - ndtri(misses[seen]), **release)
    for label, mu, colour, style in curves:
        look = {"color": colour, "linestyle": style, "label": f"{label}, μ = {mu:.3f}"}
        panels[0].plot(a, ndtr(-ndtri(a) - mu), **look)
        panels[1].plot([1e-7, 1 - 1e-7], [mu, mu], **look)
        print(f"{label}: {mu:.4f}")
    panels[0].set(xlim=(0, 1), ylim=(0, 1), xlabel="type I error", ylabel="type II error")
    panels[0].plot([0, 1], [1, 0], color=INK, linewidth=0.7)
    panels[0].text(0.54, 0.53, "nothing to learn", rotation=-40, ha="center", va="center", fontsize=10)
    panels[1].set(xscale="logit", xlim=(1e-7, 1 - 1e-4), ylim=(1.545, 1.585), xlabel="type I error")
    panels[1].set_ylabel("μ of a Gaussian with\nthe same two errors")
    panels[1].set_xticks((1e-6, 1e-4, 1e-2, 0.5, 0.99), ("1e-6", "1e-4", "0.01", "0.5", "0.99"))
    panels[1].minorticks_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    save(figure, "trade_off.png")


def noise_against_bits() -> None:
    """Standard deviation of the summed noise over the central Gaussian's (PLD), by bound, at the planner's
    scale of each."""
    from skelmix.errors import SkelmixError
    from skelmix.planning import Cohort, PrivacyTarget, plan

    widths = tuple(range(4, 13))
    looks = {"paper": (ORANGE, "^"), "rdp": (PINK, "s"), "gdp": (GREEN, "D"), "flat": (BLUE, "o")}
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    for bound, (colour, marker) in looks.items():
        points = []
        for bits in widths:
            try:
                chosen = plan(
                    PrivacyTarget(3.0, 1e-5), dimension=65_536, bits=bits, rounds=1_000, bound=bound,
                    alignment=0.02, cohort=Cohort(240, 60_000),
                )  # fmt: skip
            except SkelmixError as error:
                print(f"{bound}, {bits} bits: {error}")
                continue
            deviation = np.sqrt(2 * chosen.mechanism.total_noise) / chosen.mechanism.scale
            points.append((bits, deviation / np.sqrt(chosen.central_gaussian_mse)))
            print(f"{bound}, {bits} bits, γ = {chosen.mechanism.scale:g}: {points[-1][1]:.4f}", flush=True)
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=5, label=bound)
    renyi = np.sqrt(chosen.central_gaussian_mse_rdp / chosen.central_gaussian_mse)
    axes.axhline(1, color=GREY, linewidth=0.9, linestyle="--")
    axes.axhline(renyi, color=GREY, linewidth=0.9, linestyle=":")
    for height, name in ((1.0, "PLD"), (renyi, "Rényi")):
        axes.text(widths[-1] + 0.5, height, f"central,\n{name}", fontsize=10, color=GREY, va="center")
    axes.set(
        xlabel="bits per coordinate",
        ylabel="noise of the sum,\nover the central Gaussian's",
        title="SMM, ε = 3, δ = 1e-5, d = 65,536, 240 of 60,000, 1,000 rounds",
    )
    axes.title.set_fontsize(10)
    axes.set_xticks(widths)
    axes.legend(frameon=False, title="bound")
    save(figure, "noise_against_bits.png")


def accuracy_against_bits() -> None:
    """Test accuracy on MNIST against bits at ε = 3: the rows of `skelmix reproduce figure2`."""
    source = ROOT / "results" / "figure2.csv"
    if not source.exists():
        source = ROOT / "results" / "figure2-quick.csv"
    if not source.exists():
        print("accuracy_against_bits: no rows yet; run `skelmix reproduce figure2`")
        return
    with source.open() as file:
        rows = [
            row
            for row in csv.DictReader(line for line in file if not line.startswith("#"))
            if row["accuracy"]
        ]
    rows = [row for row in rows if float(row["epsilon"]) == 3 and int(float(row["batch"])) == 240]
    lines = [
        ("SMM, tight bound", "smm-auto", BLUE, "o"),
        ("SMM, paper's bound", "smm-paper", ORANGE, "^"),
        ("Skellam", "skellam", PINK, "D"),
        ("DDG", "ddg", INK, "v"),
    ]
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    seeds = set()
    paper_scale = {6: 16.0, 8: 64.0, 10: 256.0}
    for label, line, colour, marker in lines:
        kept: dict[int, list[float]] = {}
        for row in rows:
            if row["line"] != line:
                continue
            bits = int(float(row["bits"]))
            if line == "smm-auto" or float(row["asked_scale"]) == paper_scale.get(bits):
                kept.setdefault(bits, []).append(float(row["accuracy"]))
        if kept:
            seeds |= {len(values) for values in kept.values()}
            points = sorted((bits, fmean(values)) for bits, values in kept.items())
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=5, label=label)
    central = [float(row["accuracy"]) for row in rows if row["line"] == "gaussian-pld"]
    if central:
        axes.axhline(fmean(central), color=GREY, linewidth=1, linestyle="--", label="central DPSGD")
    rounds = sorted({int(float(row["rounds"])) for row in rows if row.get("rounds")})
    axes.set(
        xlabel="bits per coordinate",
        ylabel="test accuracy",
        title=f"MNIST, ε = 3, δ = 1e-5, {'/'.join(map(str, rounds)) or '1000'} rounds, "
        f"{'-'.join(map(str, sorted({min(seeds), max(seeds)})))} seed(s) a point ({source.name})",
    )
    axes.title.set_fontsize(10)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)
    save(figure, "accuracy_against_bits.png")


def secagg_round() -> None:
    """A round of secure aggregation as a sequence diagram."""
    figure, axes = plt.subplots(figsize=(8.4, 6.4))
    axes.set(xlim=(-1.5, 8.6), ylim=(-8.6, 1.0))
    axes.axis("off")
    people = {"participant u": (0.6, BLUE), "server": (4.0, ORANGE), "participant v": (7.4, BLUE)}
    for name, (x, colour) in people.items():
        axes.plot([x, x], [-7.95, 0.15], color=colour, linewidth=1.1, alpha=0.6)
        axes.text(
            x, 0.5, name, ha="center", va="center", fontsize=12, weight="bold", color="white",
            bbox={"boxstyle": "round,pad=0.35", "facecolor": colour, "edgecolor": colour},
        )  # fmt: skip
    u, s, v = (x for x, _ in people.values())

    def phase(y: float, title: str, up: str, down: str) -> None:
        axes.text(0.4, y, title, fontsize=11, weight="bold", color=INK, ha="right", va="center")
        for x in (u, v):
            _arrow(axes, (x, y), (s, y), color=INK)
        for x in (u, v):
            axes.text((x + s) / 2, y + 0.09, up, fontsize=10, ha="center", va="bottom", color=INK)
        if down:
            for x in (u, v):
                _arrow(axes, (s, y - 0.72), (x, y - 0.72), color=GREY)
                axes.text((x + s) / 2, y - 0.65, down, fontsize=10, ha="center", va="bottom", color="#555555")

    phase(-0.75, "advertise,\nonce", "channel key", "roster, all keys")
    phase(-2.6, "share", "mask key, sealed shares", "others' keys and shares")
    phase(-4.45, "masked", "z + self mask ± pair masks", "who survived")
    phase(-6.3, "unmask", "shares of self masks\n(of dropouts: pair keys)", "")
    axes.text(
        s, -7.35, "fewer than the threshold answer: nothing opens\nelse: masks are removed, Σ z mod 2^b is all that is learnt",
        ha="center", va="center", fontsize=11, color=INK,
        bbox={"boxstyle": "round,pad=0.5", "facecolor": "#e8f5f0", "edgecolor": GREEN},
    )  # fmt: skip
    axes.text(
        s, -8.45, "against a malicious server: before unmask, everyone signs one set of survivors", fontsize=10,
        ha="center", color="#555555",
    )  # fmt: skip
    save(figure, "secagg_round.svg")


def against_aggregator() -> None:
    """The aggregator's ε against a participant's upload, over rounds, cohorts and coins."""
    from skelmix.planning import Cohort, Plan, PrivacyTarget, plan
    from skelmix.studies.schedules import plot_schedules, schedule_rows

    def build(*, rounds: int, cohort: int, population: int, contribute: float) -> Plan:
        return plan(
            PrivacyTarget(3.0, 1e-5),
            dimension=63_610,
            bits=8,
            alignment=0.02,
            rounds=rounds,
            cohort=Cohort(cohort, population, contribute=contribute),
        )

    rows = schedule_rows(build, rounds=1_000, cohort=240, population=60_000, contribute=1.0)
    plot_schedules(ASSETS / "against-aggregator.svg", rows)


PICTURES: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        pipeline,
        coordinate_law,
        kappa,
        error_against_bits,
        trade_off,
        noise_against_bits,
        accuracy_against_bits,
        secagg_round,
        against_aggregator,
    )
}

if __name__ == "__main__":
    ASSETS.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
