"""Shamir's secret sharing (CACM 1979) of 32-byte secrets over the prime field of p = 2^256 + 297.

p is the smallest prime above 2^256, so that every 32-byte string is a field element and no secret is reduced.
Fewer than `threshold` shares are independent of the secret. Shares are field elements, 33 bytes each,
big-endian; share number x (1, 2, …) is the value of the polynomial at x.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod

import flint

from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.validation import whole

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33

_polynomials = flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(PRIME))


def split(secret: bytes, threshold: int, count: int, *, entropy: Entropy | None = None) -> list[bytes]:
    """`count` shares of a 32-byte secret, number x at position x - 1; any `threshold` of them recover it."""
    whole(1, count, threshold=threshold)
    if len(secret) != SECRET_BYTES:
        raise InvalidInput(f"secret has {len(secret)} bytes: must be {SECRET_BYTES}")
    source = entropy or system_entropy()
    coefficients: list[int | flint.fmpz | flint.fmpz_mod] = [
        int.from_bytes(secret, "big"),
        *_field_elements(threshold - 1, source),
    ]
    values = _polynomials(coefficients).multipoint_evaluate([flint.fmpz(x) for x in range(1, count + 1)])
    return [int(value).to_bytes(SHARE_BYTES, "big") for value in values]


def _field_elements(count: int, entropy: Entropy) -> list[int]:
    """Exactly uniform field elements: 257 bits at a time, those not below p (just under half) drawn again."""
    found: list[int] = []
    while len(found) < count:
        block = entropy.bytes(SHARE_BYTES * 2 * (count - len(found) + 4))
        for at in range(0, len(block), SHARE_BYTES):
            value = int.from_bytes(block[at : at + SHARE_BYTES], "big") >> 7
            if value < PRIME:
                found.append(value)
    return found[:count]


@lru_cache(maxsize=4096)
def weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange weights at 0 for the distinct share numbers `points`: Π_{j≠i} x_j / (x_j - x_i) mod p."""
    numerator = prod(points)
    denominators = [x * prod(y - x for y in points if y != x) % PRIME for x in points]
    return tuple(numerator * inverse % PRIME for inverse in _inverses(denominators))


def _inverses(values: Sequence[int]) -> list[int]:
    """All inverses mod p with one exponentiation (Montgomery's trick)."""
    running, products = 1, []
    for value in values:
        products.append(running)
        running = running * value % PRIME
    tail = pow(running, -1, PRIME)
    result = [0] * len(values)
    for i in range(len(values) - 1, -1, -1):
        result[i] = tail * products[i] % PRIME
        tail = tail * values[i] % PRIME
    return result


def recover(points: Iterable[int], shares: Iterable[bytes]) -> bytes | None:
    """The 32-byte secret from exactly `threshold` shares; None when they give no 32-byte value.

    A wrong share that still gives 32 bytes is not noticed here: callers check the secret against what was
    published of it.
    """
    values = [int.from_bytes(share, "big") for share in shares]
    total = sum(w * value for w, value in zip(weights(tuple(points)), values, strict=True)) % PRIME
    return total.to_bytes(SECRET_BYTES, "big") if total < 2**256 else None
