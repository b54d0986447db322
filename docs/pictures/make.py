"""Draws the pictures of the documentation into docs/assets: `python docs/pictures/make.py [name ...]`.

Without names all of them. The outputs are committed: building the site draws nothing.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from statistics import fmean

import numpy as np
from diagrams import pipeline, secagg_round
from drawing import ASSETS, BLUE, GREEN, GREY, INK, ORANGE, PINK, ROOT, plt, save


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
    from skelmix.accounting.rdp.mixture_constant import kappa as certified
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
    highest, beyond = 9.0, []
    figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    for label, mechanism, bound, colour, marker in lines:
        points = []
        for bits in widths:
            try:
                planned = plan(
                    PrivacyTarget(3.0, 1e-5), dimension=63_610, bits=bits, rounds=1_000,
                    mechanism=mechanism, bound=bound, alignment=0.02, cohort=Cohort(240, 60_000),
                )  # fmt: skip
            except SkelmixError as error:
                print(f"{label}, {bits} bits: {error}")
                continue
            points.append((bits, planned.predicted.effective_mse / planned.central_gaussian_mse))
            print(f"{label}, {bits} bits: {points[-1][1]:.4f} ({planned.report.bound})", flush=True)
        if not points:
            beyond.append(f"{label}: more bits than these")
        elif min(points, key=lambda point: point[1])[1] > highest:
            beyond.append(f"{label}: {points[-1][1]:.0f} at {points[-1][0]} bits")
        else:
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=5, label=label)
    axes.axhline(1, color=GREY, linewidth=0.9, linestyle="--")
    axes.text(2, 0.94, "central Gaussian, best accounting", fontsize=10, color=GREY, va="top")
    if beyond:
        axes.text(widths[-1], 2.6, "\n".join(beyond), fontsize=10, color=GREY, ha="right")
    axes.set(
        yscale="log",
        xlabel="bits per coordinate",
        ylabel="predicted error of the sum,\nover the central Gaussian's",
        title="ε = 3, δ = 1e-5, d = 63,610, 240 of 60,000, 1,000 rounds, alignment 0.02",
    )
    axes.title.set_fontsize(10)
    axes.set_xticks(widths)
    axes.set_ylim(0.85, highest)
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
                planned = plan(
                    PrivacyTarget(3.0, 1e-5), dimension=65_536, bits=bits, rounds=1_000, bound=bound,
                    alignment=0.02, cohort=Cohort(240, 60_000),
                )  # fmt: skip
            except SkelmixError as error:
                print(f"{bound}, {bits} bits: {error}")
                continue
            deviation = np.sqrt(2 * planned.mechanism.total_noise) / planned.mechanism.scale
            points.append((bits, deviation / np.sqrt(planned.central_gaussian_mse)))
            print(f"{bound}, {bits} bits, γ = {planned.mechanism.scale:g}: {points[-1][1]:.4f}", flush=True)
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=5, label=bound)
    renyi = np.sqrt(planned.central_gaussian_mse_rdp / planned.central_gaussian_mse)
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
        f"{'-'.join(map(str, sorted({min(seeds), max(seeds)})))} seed(s) per point ({source.name})",
    )
    axes.title.set_fontsize(10)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)
    save(figure, "accuracy_against_bits.png")


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
