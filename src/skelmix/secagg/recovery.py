"""Computes what is left in the sum, masks and excess noise, from the revealed shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from skelmix.errors import RoundFailed
from skelmix.noise.pieces import Piece
from skelmix.secagg import sharing
from skelmix.secagg.excess import ExcessNoise
from skelmix.secagg.keys import (
    COMMITMENT_BYTES,
    commitment,
    mask_key_pair,
    pair_mask_key,
    self_mask_key,
)
from skelmix.secagg.messages import Shares, UnmaskShares
from skelmix.secagg.sets import as_integer


@dataclass(frozen=True)
class Leftovers:
    """Keys of the masks to add and of those to remove so that the noisy sum remains, and noise to remove."""

    added: list[bytes]
    removed: list[bytes]
    noise: list[Piece]


@dataclass(frozen=True)
class Recovery:
    """The round as the server has it when the answers to the unmask request are in."""

    neighbourhoods: Sequence[Sequence[int]]
    share_threshold: int
    transcript: bytes
    excess: ExcessNoise
    shares: Mapping[int, Shares]
    survivors: set[int]
    revealed: Mapping[int, UnmaskShares]

    def leftovers(self) -> Leftovers:
        """What to add and remove.

        Each survivor's self mask and the pieces of noise that exceed what it keeps, and the masks that
        survivors have with those who dropped out after sharing. Raises `RoundFailed` when a secret has too
        few shares, or is not the one its owner published.
        """
        added: list[bytes] = []
        removed: list[bytes] = []
        noise: list[Piece] = []
        seeds = self._by_owner(lambda message: message.seed_shares)
        present = as_integer(self.survivors)
        for index in sorted(self.survivors):
            pieces = self.excess.removed(present, index)
            seed, *secrets = (
                self._recover(index, seeds.get(index, {}), at, self._committed(index, position))
                for at, position in enumerate((0, *(1 + piece for piece in pieces)))
            )
            removed.append(self_mask_key(seed, self.transcript, index))
            noise += self.excess.expandable(zip(pieces, secrets, strict=True), self.transcript, index)
        keys = self._by_owner(lambda message: message.key_shares)
        for index in sorted(set(self.shares) - self.survivors):
            near = [other for other in self.neighbourhoods[index] if other in self.survivors]
            if near:  # else no survivor has a mask with it
                self._pair_masks(index, near, keys.get(index, {}), added, removed)
        return Leftovers(added, removed, noise)

    def _pair_masks(
        self, index: int, near: list[int], held: dict[int, bytes], added: list[bytes], removed: list[bytes]
    ) -> None:
        public = self.shares[index].mask_key
        secret = self._recover(
            index, held, 0, lambda s: mask_key_pair(s, self.transcript, index).public == public
        )
        pair = mask_key_pair(secret, self.transcript, index)
        for other in near:
            theirs = self.shares[other].mask_key
            key = pair_mask_key(pair.agree(theirs), self.transcript, (index, public), (other, theirs))
            # the survivor had added the mask if its index is the lower one, else subtracted it
            (removed if other < index else added).append(key)

    def _by_owner(
        self, rows: Callable[[UnmaskShares], tuple[tuple[int, bytes], ...]]
    ) -> dict[int, dict[int, bytes]]:
        """owner of a secret -> holder -> its shares."""
        table: dict[int, dict[int, bytes]] = {}
        for holder, message in self.revealed.items():
            for index, shares in rows(message):
                table.setdefault(index, {})[holder] = shares
        return table

    def _committed(self, index: int, position: int) -> Callable[[bytes], bool]:
        start = position * COMMITMENT_BYTES
        published = self.shares[index].commitments[start : start + COMMITMENT_BYTES]
        return lambda secret: commitment(secret, self.transcript, index, position) == published

    def _recover(self, index: int, held: dict[int, bytes], at: int, right: Callable[[bytes], bool]) -> bytes:
        """The secret whose shares are at place `at` of those that the holders sent."""
        points = [(x, held[i]) for x, i in enumerate(self.neighbourhoods[index], start=1) if i in held]
        if len(points) < self.share_threshold:
            raise RoundFailed(
                f"{len(points)} of the {self.share_threshold} shares needed for index {index} came: the sum "
                "cannot be opened; run the round again"
            )
        enough = points[: self.share_threshold]
        secret = sharing.recover([x for x, _ in enough], [sharing.parts(shares)[at] for _, shares in enough])
        if not right(secret):
            raise RoundFailed(
                f"the shares of index {index} do not fit what it published: one of them is wrong; "
                "run the round again"
            )
        return secret
