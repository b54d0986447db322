"""The pictures of the documentation that show how something works: boxes, arrows and words."""

from __future__ import annotations

from typing import Any

from drawing import BLUE, GREEN, GREY, INK, ORANGE, plt, save
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch


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
