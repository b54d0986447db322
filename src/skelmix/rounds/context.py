"""The purpose of a round of secure aggregation, as 32 bytes that all its participants must agree on."""

from __future__ import annotations

from skelmix.planning.digest import json_digest
from skelmix.validation import whole


def round_context(
    plan_digest: str, round: int, run: int | str | None = None, clip_norm: float | None = None
) -> bytes:
    """The `context` of a round's settings: the plan's digest, the round's number and, if any, the run.

    clip_norm: the round's clip norm, where an adaptive clip sets it per round.

    Noise hides a vector only if everyone adds it under the same plan, on the same grid, in the same rotation.
    A participant computes the context from its own plan and compares it with the one that it is asked to
    join under; and participants with different contexts share no key.

    Example:

        >>> round_context("00" * 32, 0) == round_context("00" * 32, 1)
        False
    """
    whole(0, round=round)
    fields: dict[str, object] = {
        "plan": plan_digest,
        "round": int(round),
        "run": None if run is None else str(run),
    }
    if clip_norm is not None:
        fields["clip_norm"] = clip_norm
    return bytes.fromhex(json_digest("round", fields))
