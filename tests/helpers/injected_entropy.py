"""An entropy source that hands out what a test has put in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.noise.entropy import Entropy


class InjectedEntropy(Entropy):
    """Gives the queued byte strings, one a request; a request of another length, or too many, is an error."""

    def __init__(self, *pieces: bytes | NDArray[Any]) -> None:
        self.pieces = [p if isinstance(p, bytes) else p.tobytes() for p in pieces]

    def fill(self, out: NDArray[Any]) -> None:
        piece = self.pieces.pop(0)
        if len(piece) != out.nbytes:
            raise AssertionError(f"{out.nbytes} bytes were asked for, {len(piece)} come next")
        out[...] = np.frombuffer(piece, out.dtype).reshape(out.shape)

    def spawn(self) -> InjectedEntropy:
        raise AssertionError("no streams to spawn")
