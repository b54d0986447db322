"""Shamir's secret sharing (CACM 1979) of 16-byte secrets over the prime field of p = 2^128 - 159.

p is the largest prime below 2^128. A secret is a uniform field element, drawn by `draw_secret`: 128 bits, the
strength of the X25519 keys around it; longer keys are derived from it. Fewer than `threshold` shares are
independent of the secret. Secrets and shares are field elements, 16 bytes each, big-endian; share number x
(1, 2, …) is the value of the polynomial at x.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod

import flint

from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.validation import whole

PRIME = 2**128 - 159
SECRET_BYTES = SHARE_BYTES = 16

_polynomials = flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(PRIME))


def draw_secret(entropy: Entropy | None = None) -> bytes:
    """A fresh secret: a uniform field element."""
    return _field_elements(1, entropy or system_entropy())[0].to_bytes(SECRET_BYTES, "big")


def split(secret: bytes, threshold: int, count: int, *, entropy: Entropy | None = None) -> list[bytes]:
    """`count` shares of a secret, number x at position x - 1; any `threshold` of them recover it."""
    whole(1, count, threshold=threshold)
    if len(secret) != SECRET_BYTES or int.from_bytes(secret, "big") >= PRIME:
        raise InvalidInput(f"secret: must be {SECRET_BYTES} bytes below the field's prime; use draw_secret()")
    source = entropy or system_entropy()
    coefficients: list[int | flint.fmpz | flint.fmpz_mod] = [
        int.from_bytes(secret, "big"),
        *_field_elements(threshold - 1, source),
    ]
    values = _polynomials(coefficients).multipoint_evaluate([flint.fmpz(x) for x in range(1, count + 1)])
    return [int(value).to_bytes(SHARE_BYTES, "big") for value in values]


def _field_elements(count: int, entropy: Entropy) -> list[int]:
    """Exactly uniform field elements: 128 bits at a time; a value not below p (never seen) is drawn again."""
    elements: list[int] = []
    while len(elements) < count:
        block = entropy.bytes(SHARE_BYTES * (count - len(elements)))
        values = (
            int.from_bytes(block[at : at + SHARE_BYTES], "big") for at in range(0, len(block), SHARE_BYTES)
        )
        elements += [value for value in values if value < PRIME]
    return elements


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


def recover(points: Iterable[int], shares: Iterable[bytes]) -> bytes:
    """The secret from exactly `threshold` shares.

    A wrong share is not noticed here: callers check the secret against what was published of it.
    """
    values = [int.from_bytes(share, "big") for share in shares]
    total = sum(w * value for w, value in zip(weights(tuple(points)), values, strict=True)) % PRIME
    return total.to_bytes(SECRET_BYTES, "big")


def parts(joined: bytes) -> list[bytes]:
    """Secrets or shares that were written one after the other."""
    return [joined[at : at + SHARE_BYTES] for at in range(0, len(joined), SHARE_BYTES)]
