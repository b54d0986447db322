"""One contract for every mechanism: which vectors and settings are taken, and which are refused."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from helpers.every_mechanism import COMMON, D, noise_deviation, vectors
from skelmix.errors import InvalidInput
from skelmix.mechanisms import (
    EncodeStats,
    GaussianMixture,
    L2Clip,
    MixtureClip,
    SkellamMixture,
    mechanism_from_dict,
)
from skelmix.noise.entropy import ReproducibleEntropy


def test_lengths_whose_squares_overflow_when_added_are_clipped(mechanism):
    x = np.zeros((2, D))
    x[:, 0] = 1.2e154 / mechanism.scale
    stats = EncodeStats()
    assert np.isfinite(mechanism.decode(mechanism.encode_sum(x, round=0, stats=stats), round=0)).all()
    assert stats.clipped_rows == 2


def test_bad_vectors_are_refused(mechanism):
    x = vectors()
    for value in (np.nan, np.inf, -np.inf):
        bad = x.copy()
        bad[2, 7] = value
        for call in (mechanism.encode, mechanism.encode_sum):
            with pytest.raises(InvalidInput):
                call(bad, round=0)
        with pytest.raises(InvalidInput, match="in row 2,"):
            mechanism.encode_sum(iter([bad[:1], bad[1:]]), round=0)
    wrong = [x[:, :-1], x[0, :-1], np.zeros((0, D)), x[None], x.astype(complex), x.astype(str), np.float64(3)]
    for bad in wrong:
        with pytest.raises(InvalidInput):
            mechanism.encode(bad, round=0)
        with pytest.raises(InvalidInput):
            mechanism.encode_sum(bad, round=0)
    for empty in ([], iter([])):
        with pytest.raises(InvalidInput):
            mechanism.encode_sum(empty, round=0)
    with pytest.raises(InvalidInput):
        mechanism.encode_sum(5, round=0)
    if mechanism.padded_dimension != D or not hasattr(mechanism, "modulus"):
        with pytest.raises(InvalidInput):
            mechanism.decode(np.zeros(D + 1, np.int64), round=0)


def test_huge_but_finite_vectors_are_clipped_or_refused(mechanism):
    x = np.zeros((1, D))
    x[0, :2] = 1e300
    try:
        sent = mechanism.decode(mechanism.encode_sum(x, round=0), round=0)
    except InvalidInput:
        return
    assert np.linalg.norm(sent) < 1.5 + 7 * np.sqrt(D) * noise_deviation(mechanism)


def test_torch_tensors_are_accepted(mechanism):
    torch = pytest.importorskip("torch")
    x = vectors()
    tensor = torch.tensor(x, requires_grad=True)
    for call in (mechanism.encode, mechanism.encode_sum):
        want = call(x, round=0, entropy=ReproducibleEntropy(8))
        assert call(tensor, round=0, entropy=ReproducibleEntropy(8)).tobytes() == want.tobytes()


def test_torch_and_flwr_are_not_imported():
    code = (
        "import sys, numpy as np, skelmix.mechanisms as m;"
        "assert 'numba' not in sys.modules;"
        "k = m.SkellamMixture(dimension=3, bits=8, scale=1.0, clip_norm=1.0, total_noise=1.0);"
        "k.encode(np.ones(3), round=0);"
        "assert not {'torch', 'flwr'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_plain_data_survives_json(mechanism):
    data = json.loads(json.dumps(mechanism.to_dict()))
    assert mechanism_from_dict(data) == mechanism
    for broken in (
        {**data, "name": "nothing"},
        {**data, "extra": 1},
        {key: value for key, value in data.items() if key != "scale"},
        {**data, "rotation_seed": "zz" * 32},
        {**data, "rotation_seed": "00"},
        {**data, "total_noise": 0.0},
        {**data, "bits": 0},
        {**data, "bits": "8"},
        [],
    ):
        with pytest.raises(InvalidInput):
            mechanism_from_dict(broken)
    if "clip" in data:
        for clip in ({"kind": "odd"}, {"kind": "flat"}, {"kind": "l2", "b": 1}, None, "l2"):
            with pytest.raises(InvalidInput):
                mechanism_from_dict({**data, "clip": clip})


@pytest.mark.parametrize(
    "change",
    [
        {"dimension": 0},
        {"bits": 33},
        {"scale": -1.0},
        {"clip_norm": 0.0},
        {"total_noise": 0.0},
        {"total_noise": float("nan")},
        {"shares": 0},
        {"rotation_seed": b"short"},
        {"rotate": 1},
        {"clip_norm": 2.0**40},
    ],
)
def test_bad_fields_are_refused(mechanism, change):
    with pytest.raises(InvalidInput):
        replace(mechanism, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"keep": 0},
        {"keep": 57},
        {"keep": "8"},
        {"keep": 8.0},
        {"keep": True},
        {"keep": 8, "clip_slack": -0.1},
        {"keep": 8, "clip_slack": float("inf")},
        {"keep": 8, "clip_slack": None},
        {"keep": None, "clip_slack": 1.0},
        {"keep": 8, "rotate": False},
        {"keep": 8, "clip": MixtureClip(linf=60)},
    ],
)
def test_a_subset_that_means_nothing_is_refused(distributed, change):
    if "clip" in change and not hasattr(distributed, "clip"):
        pytest.skip("it has one clip")
    with pytest.raises(InvalidInput):
        replace(distributed, **change)


def test_baselines_send_every_coordinate_and_say_so(distributed):
    if distributed.sends_subsets:
        assert isinstance(distributed, SkellamMixture | GaussianMixture)
        return
    with pytest.raises(InvalidInput, match="use smm or dgm"):
        replace(distributed, keep=8)


def test_mechanisms_are_frozen_values(mechanism):
    with pytest.raises(FrozenInstanceError):
        mechanism.bits = 9
    assert replace(mechanism) == mechanism
    assert hash(replace(mechanism)) == hash(mechanism)


def test_l2_clip_is_the_default():
    assert isinstance(SkellamMixture(**COMMON, total_noise=1.0).clip, L2Clip)
    with pytest.raises(InvalidInput):
        SkellamMixture(**COMMON, total_noise=1.0, clip="l2")
