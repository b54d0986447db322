"""X25519 agreement, HKDF derivation, ChaCha20-Poly1305 sealing, Ed25519 identities.

Every derived key is bound to its purpose (domain separation), to the transcript of the round (session, round,
settings with their context, and roster) and to the two ends that it serves. Nothing here is invented: X25519
is RFC 7748, HKDF RFC 5869, ChaCha20-Poly1305 RFC 8439, Ed25519 RFC 8032, all from `cryptography`.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.secagg.failures import NotAuthentic

KEY_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16
COMMITMENT_BYTES = 16
_DOMAIN = b"skelmix secagg v3 "
_NONCE = bytes(12)


def framed(*parts: bytes) -> bytes:
    """The parts joined, each after its length: different lists of parts give different bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def number(value: int) -> bytes:
    """An index, identifier or round number as 8 bytes."""
    return value.to_bytes(8, "big")


def _secret(secret: bytes) -> bytes:
    if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
        raise InvalidInput(f"secret: must be {KEY_BYTES} bytes; use generate() for a new key")
    return secret


class KeyPair:
    """An X25519 key pair: a long-lived channel key, or the mask key of one round.

    Example: `KeyPair.generate().public`, 32 bytes.
    """

    __slots__ = ("_private", "public")

    def __init__(self, secret: bytes) -> None:
        """From 32 secret bytes (clamped as RFC 7748 prescribes when used)."""
        self._private = X25519PrivateKey.from_private_bytes(_secret(secret))
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, entropy: Entropy | None = None) -> Self:
        """A fresh key from the system's entropy."""
        return cls((entropy or system_entropy()).bytes(KEY_BYTES))

    def secret_bytes(self) -> bytes:
        """The private key. Keep it where no other participant and no server reads it."""
        return self._private.private_bytes_raw()

    def agree(self, peer_public: bytes) -> bytes:
        """The raw X25519 secret: input for `derive`, never a key. Points of small order are refused."""
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(peer_public))
        except ValueError as error:
            raise NotAuthentic(
                "a public key is not usable (wrong length or small order): refuse its owner"
            ) from error


class Identity:
    """A long-lived Ed25519 signing key; the others know its public half, and not from the server.

    Example: `Identity.generate().public`, which the others must learn from elsewhere than the server.
    """

    __slots__ = ("_private", "public")

    def __init__(self, secret: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(_secret(secret))
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, entropy: Entropy | None = None) -> Self:
        """A fresh key from the system's entropy."""
        return cls((entropy or system_entropy()).bytes(KEY_BYTES))

    def secret_bytes(self) -> bytes:
        """The private key. Keep it where no other participant and no server reads it."""
        return self._private.private_bytes_raw()

    def sign(self, purpose: bytes, *parts: bytes) -> bytes:
        """A signature that verifies for this purpose and these parts only."""
        return self._private.sign(framed(_DOMAIN + b"sign", purpose, *parts))


def verify(public: bytes, signature: bytes, purpose: bytes, *parts: bytes) -> None:
    """Raise `NotAuthentic` unless `signature` is `public`'s over purpose and parts."""
    text = framed(_DOMAIN + b"sign", purpose, *parts)
    try:
        # long-lived advertisements are met again in every round; long messages are met once
        (_verified if len(text) <= 1024 else _verified.__wrapped__)(public, signature, text)
    except (InvalidSignature, ValueError) as error:
        raise NotAuthentic(f"a signature ({purpose.decode()}) does not verify: refuse its sender") from error


@lru_cache(maxsize=8192)
def _verified(public: bytes, signature: bytes, text: bytes) -> None:
    """Ed25519 verification, remembering what verified; a failure raises and is not remembered."""
    Ed25519PublicKey.from_public_bytes(public).verify(signature, text)


def derive(secret: bytes, purpose: bytes, transcript: bytes, *parts: bytes) -> bytes:
    """32 bytes from HKDF-SHA256 with the transcript as salt and (domain, purpose, parts) as info."""
    info = framed(_DOMAIN + purpose, *parts)
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=transcript, info=info).derive(secret)


def digest(purpose: bytes, *parts: bytes) -> bytes:
    """SHA-256 over framed parts, separated by purpose."""
    return hashlib.sha256(framed(_DOMAIN + purpose, *parts)).digest()


def seal(key: bytes, plaintext: bytes, associated: bytes, nonce: bytes = _NONCE) -> bytes:
    """ChaCha20-Poly1305. The fixed nonce is sound: each key seals one message (`share_key`)."""
    return ChaCha20Poly1305(key).encrypt(nonce, plaintext, associated)


def unseal(key: bytes, sealed: bytes, associated: bytes, nonce: bytes = _NONCE) -> bytes:
    """The inverse of `seal`; raises `NotAuthentic` when a bit of key, text or associated data differs."""
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, sealed, associated)
    except (InvalidTag, ValueError) as error:
        raise NotAuthentic(
            "a sealed share does not open: it was altered, or made for another round or peer"
        ) from error


def share_key(shared: bytes, transcript: bytes, sender: int, recipient: int, mask_key: bytes) -> bytes:
    """The key that seals one share message.

    The sender's mask key is fresh, so each key seals one message only; and the message authenticates the mask
    key, since only the two holders of the channel can have made it.
    """
    return derive(shared, b"share", transcript, number(sender), number(recipient), mask_key)


def pair_mask_key(
    shared: bytes, transcript: bytes, first: tuple[int, bytes], second: tuple[int, bytes]
) -> bytes:
    """The AES key of the mask between two participants, given as (index, mask key) in either order."""
    low, high = sorted((first, second))
    return derive(shared, b"pair mask", transcript, number(low[0]), low[1], number(high[0]), high[1])


def self_mask_key(seed: bytes, transcript: bytes, index: int) -> bytes:
    """The AES key of a participant's own mask."""
    return derive(seed, b"self mask", transcript, number(index))


def mask_key_pair(secret: bytes, transcript: bytes, index: int) -> KeyPair:
    """A participant's mask key of one round, from the secret that its neighbours hold shares of."""
    return KeyPair(derive(secret, b"mask key", transcript, number(index)))


def commitment(secret: bytes, transcript: bytes, index: int, position: int) -> bytes:
    """16 bytes, published with the shares, by which the server notices a wrong share.

    position: 0 for the self-mask seed, 1 + i for piece i of the noise. It hides a uniform secret.
    """
    return derive(secret, b"commitment", transcript, number(index), number(position))[:COMMITMENT_BYTES]


def advertisement_parts(participant: int, channel_key: bytes) -> tuple[bytes, bytes]:
    return number(participant), channel_key


def survivors_parts(transcript: bytes, survivors: bytes) -> tuple[bytes, bytes]:
    return transcript, survivors
