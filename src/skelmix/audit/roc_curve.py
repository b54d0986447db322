"""The attack's ROC curve against the region that the claim allows. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from skelmix.arrays import FloatArray
from skelmix.audit.release import ReleaseAudit
from skelmix.errors import MissingExtra


def roc(with_vector: FloatArray, without: FloatArray, points: int = 4_000) -> tuple[FloatArray, FloatArray]:
    """(false positive rate, true positive rate) of the thresholds, from strict to lax."""
    both = np.sort(np.concatenate([with_vector, without]))
    steps = np.concatenate([np.linspace(0, 1, points), 1 - np.geomspace(1 / len(both), 1, points)])
    cuts = np.unique(np.quantile(both, steps, method="lower"))[::-1]
    rates = [1 - np.searchsorted(np.sort(scores), cuts) / len(scores) for scores in (without, with_vector)]
    return rates[0], rates[1]


def allowed(false_positives: FloatArray, epsilon: float, delta: float) -> FloatArray:
    """The highest true positive rate that (ε, δ) leaves at these false positive rates: both directions."""
    forward = np.exp(epsilon) * false_positives + delta
    reverse = 1 - np.exp(-epsilon) * np.maximum(1 - delta - false_positives, 0)
    return np.asarray(np.minimum(np.minimum(forward, reverse), 1.0))


def plot(audit: ReleaseAudit, path: Path) -> None:
    """Write the picture: one curve per pair of worlds, on logarithmic axes for the rare errors too."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("the ROC curve needs matplotlib: pip install 'skelmix[plot]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(8.4, 4.2), layout="constrained")
    grid = np.geomspace(1e-6, 1, 800)
    for axes, scale in zip(panels, ("linear", "log"), strict=True):
        border = allowed(grid, audit.claimed, audit.delta)
        axes.fill_between(grid, border, 1, color="#D55E00", alpha=0.18, label="ruled out by the claim")
        axes.plot(grid, grid, color="#999999", linewidth=0.8, linestyle=":", label="guessing")
        for attack, colour in zip(audit.attacks, ("#0072B2", "#009E73"), strict=False):
            x, y = roc(attack.with_vector, attack.without)
            axes.plot(x, y, color=colour, linewidth=1.4, label=f"attack, {attack.pair.name}")
        axes.set(xscale=scale, yscale=scale, xlabel="false positive rate", ylabel="true positive rate")
        if scale == "log":
            least = 10 * audit.attacks[0].without.size ** -1.0
            axes.set(xlim=(least, 1), ylim=(least, 1))
    panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    figure.suptitle(
        f"{audit.mechanism.name}, {audit.mechanism.bits} bits: claimed ε = {audit.claimed:.3g}, "
        f"attacked {audit.lower_bound:.3g}, δ = {audit.delta:g}, {audit.trials:,} trials",
        fontsize=10,
    )
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
