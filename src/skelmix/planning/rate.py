"""The shape of one upload: how many rotated coordinates are sent, and how many bits each has."""

from __future__ import annotations

from dataclasses import dataclass

from skelmix import validation
from skelmix.encoding.rotation import padded
from skelmix.errors import InvalidInput

MOST_BITS = 32
DEFAULT_BITS = 8
LEAST_RATE, MOST_RATE = 0.01, 32.0


@dataclass(frozen=True)
class UploadShape:
    """The shape of an upload: bits per coordinate, and how many of the rotated coordinates are sent.

    keep: None for all of them.

    Example:

        >>> UploadShape(bits=8, keep=512).size(65_536)
        512
    """

    bits: int
    keep: int | None = None

    def size(self, dimension: int) -> int:
        """Bytes of the packed upload."""
        return packed_bytes(padded(dimension) if self.keep is None else self.keep, self.bits)


def packed_bytes(coordinates: int, bits: int) -> int:
    """Bytes of this many integers, each as many bits wide, packed without gaps."""
    return -(-coordinates * bits // 8)


def upload_shapes(
    *,
    rate: float | None,
    bits: int | None,
    keep: float | None,
    dimension: int,
    subsets: bool,
    weights: int | None = None,
) -> list[UploadShape]:
    """Every shape worth trying, from all coordinates with few bits to few coordinates with many bits.

    rate: bits per weight that an upload may have; weights: how many of the vector's entries are weights, all
    by default. With a rate and either bits or keep (a fraction of the rotated coordinates), the third
    follows; without a rate there is one shape. subsets: whether fewer coordinates than all may be sent.
    Raises `InvalidInput` when nothing fits.
    """
    validation.whole(1, 2**26, dimension=dimension)
    if bits is not None:
        validation.bits(bits)
    length = padded(dimension)
    kept = None if keep is None else _kept(keep, length)
    if kept is not None and kept < length and not subsets:
        raise InvalidInput(
            f"keep = {keep!r}: this mechanism and bound need every coordinate; use keep = 1, or smm or dgm "
            "with bound='tight'"
        )
    if rate is None:
        return [_shape(DEFAULT_BITS if bits is None else bits, kept or length, length)]
    if bits is not None and keep is not None:
        raise InvalidInput(f"rate = {rate!r}: follows from bits and keep; leave one of the three out")
    weights = weights or dimension
    budget = _budget(rate, weights)
    if bits is not None:
        shapes = [_shape(bits, budget // bits, length)]
    elif kept is not None:
        shapes = [_shape(budget // kept, kept, length)]
    else:
        dense = min(MOST_BITS, budget // length)
        shapes = [_shape(dense, length, length)]
        shapes += [_shape(wide, budget // wide, length) for wide in range(dense + 1, MOST_BITS + 1)]
    able = [
        shape for shape in shapes if shape.bits >= 1 and (shape.keep is None or (subsets and shape.keep >= 1))
    ]
    if not able:
        raise InvalidInput(_too_low(rate, weights, length, subsets, bits, keep))
    return able


def _kept(keep: float, length: int) -> int:
    """The number of coordinates that a fraction stands for, at least one."""
    validation.positive(keep=keep)
    if keep > 1:
        raise InvalidInput(f"keep = {keep!r}: must be in (0, 1]; it is a fraction of the coordinates")
    return max(1, round(keep * length))


def _budget(rate: float, weights: int) -> int:
    """Bits of a whole upload."""
    validation.positive(rate=rate)
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise InvalidInput(
            f"rate = {rate!r}: must be in {LEAST_RATE:g}..{MOST_RATE:g}, the bits per weight that are sent"
        )
    return int(rate * weights + 1e-6)


def _shape(bits: int, coordinates: int, length: int) -> UploadShape:
    return UploadShape(min(bits, MOST_BITS), None if coordinates >= length else coordinates)


def _too_low(
    rate: float, weights: int, length: int, subsets: bool, bits: int | None, keep: float | None
) -> str:
    least = (1 if subsets else length) / weights * (bits or 1)
    if keep is not None:
        least = _kept(keep, length) / weights
    what = "one coordinate" if subsets and keep is None else "every coordinate that is to be sent"
    remedy = "" if subsets else ", or take smm or dgm with bound='tight', which may send fewer coordinates"
    return f"rate = {rate!r}: {what} takes {least:.4g} bits per weight; raise the rate to that{remedy}"
