"""Privacy bounds: numbers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.accounting.prediction import PredictedError

__all__ = [
    "PredictedError",
]

_HOMES = {"prediction": ("PredictedError",)}

__getattr__ = lazily(__name__, _HOMES)
