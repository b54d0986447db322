"""The server's unmasking with Flower's own SecAgg+ primitives, to compare skelmix's with."""

from __future__ import annotations

import time

import numpy as np
from flwr.common.secure_aggregation.crypto import shamir
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.supercore.primitives import asymmetric as keys

from skelmix.noise.entropy import system_entropy


def unmask_seconds(n: int, dimension: int, bits: int, absent: int) -> float:
    """Processor seconds for the unmasking of a round of n whose first `absent` dropped out after sharing.

    The loop of Flower's SecAgg+ workflow, full graph, shares of all but the absent needed. The shares are
    made beforehand; combining them, expanding the masks and removing them is what is timed.
    """
    pairs = [keys.generate_key_pairs() for _ in range(n)]
    shares = []
    for p, (private, _) in enumerate(pairs):
        secret = keys.private_key_to_bytes(private) if p < absent else system_entropy().bytes(32)
        shares.append(shamir.create_shares(secret, n - absent, n)[absent:])
    total = [np.zeros(dimension, np.int64)]
    published = [keys.public_key_to_bytes(public) for _, public in pairs]
    modulus = 1 << bits
    shape: list[tuple[int, ...]] = [(dimension,)]
    start = time.process_time()
    for p in range(n):
        secret = shamir.combine_shares(shares[p])
        if p >= absent:
            total = parameters_subtraction(total, pseudo_rand_gen(secret, modulus, shape))
            continue
        for other in range(n):
            if other == p:
                continue
            private, public = keys.bytes_to_private_key(secret), keys.bytes_to_public_key(published[other])
            shared = generate_shared_key(private, public)
            mask = pseudo_rand_gen(shared, modulus, shape)
            combine = parameters_addition if p > other else parameters_subtraction
            total = combine(total, mask)
    parameters_mod(total, modulus)
    return time.process_time() - start
