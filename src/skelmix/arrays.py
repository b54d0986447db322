"""Names of the array types that annotations use most."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
WordArray = NDArray[np.unsignedinteger[Any]]
"""Unsigned integers of 8 to 64 bits: residues modulo a power of two."""
