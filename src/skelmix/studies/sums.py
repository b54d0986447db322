"""One sum under one mechanism, predicted and measured: the cell of Figures 1 and 4 (Bao et al. 2022, 6.1)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.encoding.rotation import rotate
from skelmix.encoding.subset import choose
from skelmix.mechanisms import EncodeStats, Mechanism
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.planning import Cohort, Plan, PrivacyTarget, account, plan
from skelmix.studies.rows import Row, text

SETTINGS = (
    "line",
    "bits",
    "asked_scale",
    "epsilon",
    "delta",
    "participants",
    "dimension",
    "radius",
    "repetitions",
)
MEASURES = (
    "mse",
    "mse_spread",
    "predicted_mse",
    "predicted_noise",
    "ratio",
    "kept_length",
    "wrapped_fraction",
    "wrap_probability",
    "scale",
    "noise",
    "total_noise",
    "bound",
    "order",
    "note",
)

#: line of a figure -> (mechanism, bound)
LINES = {
    "gaussian-rdp": ("gaussian", "rdp"),
    "gaussian-pld": ("gaussian", "tight"),
    "smm-tight": ("smm", "tight"),
    "smm-auto": ("smm", "tight"),
    "smm-rate": ("smm", "tight"),
    "smm-paper": ("smm", "paper"),
    "dgm-tight": ("dgm", "tight"),
    "dgm-paper": ("dgm", "paper"),
    "dgm-paper-integer": ("dgm", "paper"),
    "skellam": ("skellam", "paper"),
    "ddg": ("ddg", "paper"),
    "cpsgd": ("cpsgd", "tight"),
}


def cell(line: str, bits: int | None, scale: float | None, epsilon: float, **common: Any) -> Row:
    """The settings of one row; the central Gaussian has no bits and no scale."""
    return {"line": line, "bits": bits, "asked_scale": scale, "epsilon": epsilon, **common}


def measure(cell: Row) -> Row:
    """Plan, then sum `repetitions` times, with new points, rotation and noise.

    All of them follow from the settings.
    """
    plan = _plan(cell)
    mechanism = plan.mechanism
    errors, stats = [], EncodeStats()
    for repetition in range(cell["repetitions"]):
        points = sphere(cell["participants"], cell["dimension"], repetition) * cell["radius"]
        entropy = ReproducibleEntropy(_seed(cell, repetition))
        total = mechanism.encode_sum(points, round=repetition, entropy=entropy, stats=stats)
        estimate = mechanism.decode(total, round=repetition)
        errors.append(float(np.mean((estimate - points.sum(axis=0)) ** 2)))
    mse = float(np.mean(errors))
    predicted = plan.predicted
    return {
        "mse": mse,
        "mse_spread": float(np.std(errors)),
        "predicted_mse": predicted.mse,
        "predicted_noise": predicted.noise,
        "ratio": mse / predicted.mse,
        "kept_length": kept_length(mechanism, points),
        "wrapped_fraction": stats.wrapped_coordinates / (mechanism.coordinates * len(errors)),
        "wrap_probability": predicted.wrap_probability,
        "scale": mechanism.scale,
        "noise": mechanism.noise,
        "total_noise": mechanism.total_noise,
        "bound": plan.report.bound,
        "order": plan.report.order,
    }


@lru_cache(maxsize=4)
def sphere(participants: int, dimension: int, seed: int) -> NDArray[np.float64]:
    """Points uniform on the unit sphere, (participants, dimension); public synthetic data."""
    points = np.random.default_rng(seed).standard_normal((participants, dimension))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points


def kept_length(mechanism: Mechanism, points: NDArray[np.float64]) -> float:
    """Fraction of the true sum's length that the mechanism's clip leaves, without noise.

    It is ⟨clipped sum, sum⟩/‖sum‖².
    """
    clip = getattr(mechanism, "clip", None)
    if clip is None:
        return 1.0
    true = clipped = np.zeros(mechanism.coordinates)
    for block in np.array_split(points, max(1, len(points) // 20)):
        x = rotate(np.ascontiguousarray(block), mechanism.rotation_seed, 0, scale=mechanism.scale)
        if mechanism.keep is not None:
            sent = choose(mechanism.rotation_seed, 0, mechanism.padded_dimension, mechanism.keep)
            x = np.ascontiguousarray(x[:, sent])
        true = true + x.sum(axis=0)
        clip.apply(x, mechanism.radius)
        clipped = clipped + x.sum(axis=0)
    return float(clipped @ true / (true @ true))


def _plan(cell: Row) -> Plan:
    name, bound = LINES[cell["line"]]
    setting: dict[str, Any] = {
        "dimension": cell["dimension"],
        "cohort": Cohort(cell["participants"], cell["participants"], sampling="none"),
        "clip_norm": cell["radius"],
        "bits": cell["bits"] or 32,
        "mechanism": name,
        "bound": bound,
        "alignment": 0.0,  # random directions are orthogonal
    }
    target = PrivacyTarget(cell["epsilon"], cell["delta"])
    planned = plan(target, **setting, scale=cell["asked_scale"], allow_wrapping=True)
    if cell["line"].endswith("-integer"):  # more noise than was asked for: still private
        sigma = ceil(planned.mechanism.noise)
        planned = account(noise=sigma, delta=cell["delta"], **setting, scale=planned.mechanism.scale)
    return replace(planned, mechanism=replace(planned.mechanism, rotation_seed=_seed(cell, -1)))


def _seed(cell: Row, repetition: int) -> bytes:
    words = "|".join(text(cell[name]) for name in SETTINGS) + f"|{repetition}"
    return hashlib.sha256(words.encode()).digest()
