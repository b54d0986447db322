"""One file per figure or table of the paper; results are tables, pictures and judged claims.

`Loopback` is the local Flower deployment that benchmarks, tests and examples share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.studies.fleet import Loopback

__all__ = ["Loopback"]

__getattr__ = lazily(__name__, {"fleet": ("Loopback",)})
