"""Distributed differential privacy for Flower apps: one mod on the client, one wrapper on the server.

Needs `skelmix[flower]`.

`ClientApp(mods=[skelmix_mod])` and `strategy.start(grid=SecureGrid(grid, plan), ...)`; under a plan for silos
the train function replies with `silo_update(model, loss, records, targets)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.flower.arrays import dimension
    from skelmix.flower.grid import RoundRecord, SecureGrid
    from skelmix.flower.mod import make_mod, skelmix_mod
    from skelmix.flower.policy import ClientPolicy
    from skelmix.flower.silo import silo_update

__all__ = ["ClientPolicy", "RoundRecord", "SecureGrid", "dimension", "make_mod", "silo_update", "skelmix_mod"]

_HOMES = {
    "policy": ("ClientPolicy",),
    "grid": ("RoundRecord", "SecureGrid"),
    "arrays": ("dimension",),
    "mod": ("make_mod", "skelmix_mod"),
    "silo": ("silo_update",),
}

__getattr__ = lazily(__name__, _HOMES, needs=("flwr", "flower"))
