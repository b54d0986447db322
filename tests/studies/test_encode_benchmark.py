"""The peer in the benchmark does the same steps: its output has the same law, so the comparison is fair."""

import numpy as np

from skelmix.encoding.rotation import rotate, rotation_signs
from skelmix.encoding.wrapping import unwrap
from skelmix.studies.benchmarks.encode import BITS, DIMENSION, NOISE, SCALE, plain_numpy

SEED = bytes(32)


def test_plain_numpy_rotates_rounds_and_adds_noise_as_encode_does():
    rng = np.random.default_rng(0)
    vector = rng.standard_normal(DIMENSION).astype(np.float32)
    vector /= np.linalg.norm(vector)
    sent = unwrap(plain_numpy(vector, rotation_signs(SEED, 0, DIMENSION), rng), BITS)
    error = sent - rotate(vector, SEED, 0, scale=SCALE)
    variance = 2 * NOISE + 0.16  # the rounding of N(0, 1/16) coordinates
    assert abs(error.mean()) < 7 * np.sqrt(variance / DIMENSION)
    assert abs(error.var() / variance - 1) < 0.05
