"""Distributed differential privacy for Flower apps (`skelmix[flower]`): one mod on the client, one wrapper
on the server.

`ClientApp(mods=[skelmix_mod])` and `strategy.start(grid=SecureGrid(grid, plan), ...)`; under a plan for silos
the train function replies with `silo_update(model, loss, records, targets)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.flower.arrays import dimension
    from skelmix.flower.grid import SecureGrid
    from skelmix.flower.mod import make_mod, skelmix_mod
    from skelmix.flower.policy import ClientPolicy
    from skelmix.flower.silo import silo_update

__all__ = ["ClientPolicy", "SecureGrid", "dimension", "make_mod", "silo_update", "skelmix_mod"]

_HOMES = {
    "ClientPolicy": "policy",
    "SecureGrid": "grid",
    "dimension": "arrays",
    "make_mod": "mod",
    "silo_update": "silo",
    "skelmix_mod": "mod",
}

__getattr__ = lazily(__name__, _HOMES, needs=("flwr", "flower"))
