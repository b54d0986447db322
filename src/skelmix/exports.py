"""Names that a package exports and loads on first use, so that importing it stays light."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from skelmix.errors import MissingExtra


def lazily(
    package: str, homes: Mapping[str, tuple[str, ...]], *, needs: tuple[str, str] | None = None
) -> Callable[[str], Any]:
    """The `__getattr__` of a package: each name is imported from its home module when it is first used.

    homes: module, relative to `package` -> its names. needs: (import name, extra of skelmix) of a package
    that must be installed; without it `MissingExtra` says what to install.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{package}.{home[name]}"), name)
        except ModuleNotFoundError as error:  # its traceback would say no more
            if needs is None or (error.name or "").partition(".")[0] != needs[0]:
                raise
            raise MissingExtra(f"{needs[0]} is not installed: pip install 'skelmix[{needs[1]}]'") from None

    return load
