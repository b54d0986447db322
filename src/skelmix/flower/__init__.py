"""Distributed differential privacy for Flower apps (`skelmix[flower]`): one mod on the client, one wrapper
on the server.

`ClientApp(mods=[skelmix_mod])` and `strategy.start(grid=SecureGrid(grid, plan), ...)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skelmix.errors import MissingExtra

if TYPE_CHECKING:
    from skelmix.flower.arrays import dimension
    from skelmix.flower.grid import SecureGrid
    from skelmix.flower.mod import make_mod, skelmix_mod
    from skelmix.flower.policy import ClientPolicy

__all__ = ["ClientPolicy", "SecureGrid", "dimension", "make_mod", "skelmix_mod"]

_HOMES = {
    "ClientPolicy": "policy",
    "SecureGrid": "grid",
    "dimension": "arrays",
    "make_mod": "mod",
    "skelmix_mod": "mod",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "flwr":
            raise
        raise MissingExtra("Flower is not installed: pip install 'skelmix[flower]'") from error
