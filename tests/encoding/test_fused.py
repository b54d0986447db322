import math

import numpy as np
import pytest

from skelmix.errors import InvalidInput
from skelmix.mechanisms import FlatClip, GaussianMixture, L2Clip, SkellamMixture
from skelmix.mechanisms.mechanism import IntegerMechanism
from skelmix.noise.entropy import Entropy, ReproducibleEntropy


class ByWidth(Entropy):
    """Short and long words from streams of their own: what is drawn does not depend on how they alternate."""

    def __init__(self, seed):
        self.streams = {2: ReproducibleEntropy(seed), 8: ReproducibleEntropy(seed + 1)}

    def fill(self, out):
        self.streams[out.dtype.itemsize].fill(out)

    def spawn(self):
        raise NotImplementedError


def both_ways(mechanism, rows):
    """The fused pass and the same steps one by one."""
    draws = mechanism._sampler(None)
    sent = []
    for kind in (type(mechanism), IntegerMechanism):
        out = np.empty((len(rows), mechanism.coordinates), mechanism.encode(rows[0], round=3).dtype)
        kind._encode_block(mechanism, (0, rows), 3, draws, out, ByWidth(5))
        sent.append(out)
    return sent


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [SkellamMixture, GaussianMixture])
@pytest.mark.parametrize("clip", [L2Clip(), FlatClip(0.4), FlatClip(3.0)])
@pytest.mark.parametrize(
    ("dimension", "bits", "scale", "noise"),
    [
        (1, 8, 5.0, 7.0),
        (3000, 4, 8.0, 3.0),
        (70_001, 8, 64.0, 900.0),
        (4096, 16, 2000.0, 2e6),
        (64, 32, 3e5, 50.0),
    ],
)
def test_the_fused_pass_sends_what_the_steps_send(dtype, kind, clip, dimension, bits, scale, noise):
    mechanism = kind(
        dimension=dimension, bits=bits, scale=scale, clip_norm=1.0, total_noise=noise, shares=3, clip=clip
    )
    rng = np.random.default_rng(dimension)
    rows = (rng.standard_normal((5, dimension)) * [[0], [0.1], [1], [1e4], [1]]).astype(dtype)
    rows[4] = 0
    rows[4, 0] = 2
    fused, stepwise = both_ways(mechanism, rows)
    np.testing.assert_array_equal(fused, stepwise)
    assert len(np.unique(fused)) > 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clip", [L2Clip(), FlatClip(0.4)])
@pytest.mark.parametrize(
    ("dimension", "keep"), [(1, 1), (50, 7), (3000, 3000), (70_001, 8_000), (70_001, 60_000)]
)
def test_the_fused_pass_gathers_as_the_steps_do(dtype, clip, dimension, keep):
    mechanism = SkellamMixture(
        dimension=dimension,
        bits=8,
        scale=64.0,
        clip_norm=1.0,
        total_noise=90.0,
        shares=3,
        keep=keep,
        clip_slack=1.0,
        clip=clip,
    )
    rng = np.random.default_rng(dimension)
    rows = (rng.standard_normal((4, dimension)) * [[0], [0.1], [1], [1e4]]).astype(dtype)
    fused, stepwise = both_ways(mechanism, rows)
    assert fused.shape == (4, keep)
    np.testing.assert_array_equal(fused, stepwise)
    assert len(np.unique(fused)) > 1


def test_ties_and_open_draws_happen_in_the_comparison():
    """At 2^20 coordinates there are about 16 ties and hundreds of draws that need more than sixteen bits."""
    mechanism = SkellamMixture(dimension=1 << 16, bits=8, scale=64.0, clip_norm=1.0, total_noise=1428.0)
    rows = np.random.default_rng(0).standard_normal((16, 1 << 16)).astype(np.float32)
    drawn = []

    class Counting(ByWidth):
        def fill(self, out):
            drawn.append((out.dtype.itemsize, out.size))
            super().fill(out)

    out = np.empty((16, 1 << 16), np.uint8)
    mechanism._encode_block((0, rows), 0, mechanism._sampler(None), out, Counting(1))
    assert drawn[:2] == [(2, 1 << 20)] * 2
    (_, opened), (_, tied) = drawn[2:]
    assert opened > 100
    assert 1 <= tied <= 60
    fused, stepwise = both_ways(mechanism, rows)
    np.testing.assert_array_equal(fused, stepwise)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
def test_a_row_that_is_not_finite_is_named(bad):
    mechanism = SkellamMixture(dimension=70_000, bits=8, scale=64.0, clip_norm=1.0, total_noise=900.0)
    rows = np.ones((20, 70_000), np.float32)
    rows[17, 5] = bad
    if math.isfinite(bad):
        rows[17] = bad  # its rotation overflows
    with pytest.raises(InvalidInput, match="in row 17,"):
        mechanism.encode(rows, round=0)
    with pytest.raises(InvalidInput, match="in row 17,"):
        mechanism.encode_sum(rows, round=0)
