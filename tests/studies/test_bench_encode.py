"""The benchmark of the participant's side, small: it measures what it says, and can be read."""

import io

import pytest
from rich.console import Console

from skelmix.encoding.threads import worker_count
from skelmix.studies.benchmarks import encode

pytestmark = pytest.mark.xdist_group("bench encode")  # what is dear to set up is set up once


@pytest.fixture(scope="module")
def result():
    return encode.run(participants=32, largest=12, repeats=1, model=300_000)


def test_memory_of_a_stream_does_not_grow_with_its_length(result):
    few, many = (entry["peak_bytes"] for entry in result["encode_sum_memory"])
    assert [entry["participants"] for entry in result["encode_sum_memory"]] == [100, 10_000]
    # how many blocks of 2^20 coordinates are under way varies: at most twice as many as there are threads
    assert max(few, many) < 2 * worker_count() * 15 * 2**20


def test_low_rates_and_large_models_are_measured(result):
    half, sixteenth = result["low_rates"]
    assert (half["keep"], sixteenth["keep"]) == (4096, 512)
    assert [entry["length"] for entry in result["lengths"]] == [81_920, 98_304, 114_688]
    large = result["large_model"]
    assert large["keep"] == 3750
    assert 2 < large["times_vector"] < 3  # the vector and its rotation, and little else


def test_the_table_shows_every_measurement(result):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(encode.table(result))
    shown = console.export_text()
    assert f"{result['times_numpy']:.1f} times plain NumPy" in shown
    assert [entry["dimension"] for entry in result["by_dimension"]] == [1024, 4096]
