"""Next-character records from people's texts, split by person.

A record is a window of characters and the same window one character later. Each person is a participant; some
are held out whole for testing, so that a score is about people the model has not met.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skelmix.datasets.partition import Partition
from skelmix.errors import InvalidInput
from skelmix.validation import fraction, whole

ALPHABET = "\0\n !\"',-.:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The 64 symbols, fixed beforehand; the first stands for every other character."""

_CODES = np.zeros(256, np.uint8)
_CODES[[ord(symbol) for symbol in ALPHABET]] = np.arange(len(ALPHABET))


@dataclass(frozen=True, eq=False)
class CharacterWindows:
    """Windows of characters by person: records of `people[i]` are `partition.records_of(i)`.

    Records are rows of `inputs` and `targets`, both uint8 (records, length) of places in `ALPHABET`;
    `targets` is one character further on.
    """

    people: tuple[str, ...]
    inputs: NDArray[np.uint8]
    targets: NDArray[np.uint8]
    partition: Partition


def encode(text: str) -> NDArray[np.uint8]:
    """Places in `ALPHABET`, uint8; `decode` is the inverse but for characters outside it."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return _CODES[np.where(points < len(_CODES), points, 0)]


def decode(codes: NDArray[np.uint8]) -> str:
    """The characters at these places of `ALPHABET`."""
    return "".join(ALPHABET[code] for code in codes)


def character_windows(
    texts: Mapping[str, str], *, length: int = 32, most: int | None = None, seed: int = 0
) -> CharacterWindows:
    """Cut each person's text into windows of `length` characters, shuffled; at most `most` each (None: all).

    People with less than a window and the character after it are left out, and so are remainders.

    Example:

        >>> windows = character_windows({"ann": "To be or not to be", "bob": "Ay."}, length=8)
        >>> windows.people, windows.inputs.shape
        (('ann',), (2, 8))
        >>> sorted((decode(x), decode(y)) for x, y in zip(windows.inputs, windows.targets))
        [(' not to ', 'not to b'), ('To be or', 'o be or ')]
    """
    whole(1, length=length)
    if most is not None:
        whole(1, most=most)
    rng = np.random.default_rng(seed)
    people, inputs, targets, sizes = list[str](), [], [], [0]
    for person, text in texts.items():
        codes = encode(text)
        count = (len(codes) - 1) // length
        if count < 1:
            continue
        kept = rng.permutation(count)[:most]
        people.append(person)
        inputs.append(codes[: count * length].reshape(count, length)[kept])
        targets.append(codes[1 : count * length + 1].reshape(count, length)[kept])
        sizes.append(len(kept))
    if not people:
        raise InvalidInput(f"length = {length}: nobody wrote that much; take shorter windows")
    offsets = np.cumsum(sizes).astype(np.int64)
    partition = Partition(np.arange(offsets[-1]), offsets)
    return CharacterWindows(tuple(people), np.concatenate(inputs), np.concatenate(targets), partition)


def split_people(texts: Mapping[str, str], share: float = 0.1) -> tuple[dict[str, str], dict[str, str]]:
    """Split people into (training people, test people), about `share` of them for testing.

    The choice is by a digest of the name, so that the split is the same on every machine and does not depend
    on who else is there.
    """
    fraction(share=share)

    def held_out(person: str) -> bool:
        digest = hashlib.sha256(person.encode()).digest()
        return int.from_bytes(digest[:8], "big") < share * 2.0**64

    train = {person: text for person, text in texts.items() if not held_out(person)}
    return train, {person: text for person, text in texts.items() if person not in train}
