"""Computes the masks that are left in the sum from the revealed shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from skelmix.errors import RoundFailed
from skelmix.secagg import sharing
from skelmix.secagg.keys import KeyPair, pair_mask_key, seed_commitment, self_mask_key
from skelmix.secagg.messages import Shares, UnmaskShares


def masks_left(
    neighbourhoods: Sequence[Sequence[int]],
    share_threshold: int,
    transcript: bytes,
    shares: Mapping[int, Shares],
    survivors: set[int],
    revealed: Mapping[int, UnmaskShares],
) -> tuple[list[bytes], list[bytes]]:
    """Keys of the masks to add and of those to remove so that the plain sum remains.

    Each survivor's self mask is removed, and the masks that survivors have with those who dropped out after
    sharing. Raises `RoundFailed` when a secret has too few shares, or is not the one its owner published.
    """
    seeds: dict[int, dict[int, bytes]] = {}
    keys: dict[int, dict[int, bytes]] = {}
    for holder, message in revealed.items():
        for table, rows in ((seeds, message.seed_shares), (keys, message.key_shares)):
            for index, share in rows:
                table.setdefault(index, {})[holder] = share

    def recover(index: int, held: dict[int, bytes], right: Callable[[bytes], bool]) -> bytes:
        found = [(x, held[i]) for x, i in enumerate(neighbourhoods[index], start=1) if i in held]
        if len(found) < share_threshold:
            raise RoundFailed(
                f"{len(found)} of the {share_threshold} shares needed for index {index} came: the sum cannot "
                "be opened; run the round again"
            )
        chosen = found[:share_threshold]
        secret = sharing.recover([x for x, _ in chosen], [share for _, share in chosen])
        if secret is None or not right(secret):
            raise RoundFailed(
                f"the shares of index {index} do not fit what it published: one of them is wrong; "
                "run the round again"
            )
        return secret

    added: list[bytes] = []
    removed: list[bytes] = []
    for index in survivors:
        published = shares[index].seed_commitment
        seed = recover(
            index,
            seeds.get(index, {}),
            lambda s, i=index, p=published: seed_commitment(s, transcript, i) == p,  # type: ignore[misc]
        )
        removed.append(self_mask_key(seed, transcript, index))
    for index in set(shares) - survivors:
        near = [other for other in neighbourhoods[index] if other in survivors]
        if not near:
            continue  # no survivor has a mask with it
        public = shares[index].mask_key
        secret = recover(index, keys.get(index, {}), lambda s, p=public: KeyPair(s).public == p)  # type: ignore[misc]
        pair = KeyPair(secret)
        for other in near:
            shared = pair.agree(shares[other].mask_key)
            key = pair_mask_key(shared, transcript, (index, public), (other, shares[other].mask_key))
            # the survivor had added the mask if its index is the lower one, else subtracted it
            (removed if other < index else added).append(key)
    return added, removed
