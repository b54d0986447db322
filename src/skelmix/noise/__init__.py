"""Exact integer noise: no floating-point probabilities. Public: how experiments repeat their noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.noise.entropy import Entropy, ReproducibleEntropy

__all__ = ["Entropy", "ReproducibleEntropy"]

__getattr__ = lazily(__name__, {"entropy": ("Entropy", "ReproducibleEntropy")})
