"""The benchmark of the participant's side, small: it measures what it says, and can be read."""

import io

import numpy as np
import pytest
from rich.console import Console

from skelmix.benchmarks import encode
from skelmix.encoding.rotation import rotation_signs
from skelmix.encoding.threads import worker_count


@pytest.fixture(scope="module")
def result():
    return encode.run(participants=32, largest=12, repeats=1)


def test_memory_of_a_stream_does_not_grow_with_its_length(result):
    few, many = (entry["peak_bytes"] for entry in result["encode_sum_memory"])
    assert [entry["participants"] for entry in result["encode_sum_memory"]] == [100, 10_000]
    # how many blocks of 2^20 coordinates are under way varies: at most two more than there are threads
    assert max(few, many) < (worker_count() + 2) * 15 * 2**20


def test_the_table_shows_every_measurement(result):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(encode.table(result))
    shown = console.export_text()
    assert f"{result['times_numpy']:.1f} times plain NumPy" in shown
    assert [entry["dimension"] for entry in result["by_dimension"]] == [1024, 4096]


def test_the_peer_does_the_same_work():
    """Plain NumPy's steps, without noise to speak of, give what the mechanism's own steps give on average."""
    d = encode.DIMENSION
    vector = np.zeros(d, np.float32)
    vector[0] = 1.0
    rng = np.random.default_rng(5)
    sent = encode.plain_numpy(vector, rotation_signs(bytes(range(32)), 0, d), rng).astype(np.int8)
    # every coordinate is ±64/√d = ±0.25 before rounding; noise has variance 2·5.95
    assert np.abs(sent.astype(float)).mean() == pytest.approx(np.sqrt(12.1 * 2 / np.pi), rel=0.02)
