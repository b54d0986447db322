"""What the pictures of the documentation have in common: colours, fonts, and how they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

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
