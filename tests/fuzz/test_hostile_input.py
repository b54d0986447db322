"""Hostile bytes meet every decoder: named errors or a right answer, and no memory beyond the limits."""

import gzip
import os
import random
import struct
import tracemalloc

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.decoders import DECODERS
from fuzz.mutations import mutate
from skelmix.cli.rows import open_rows
from skelmix.datasets import idx
from skelmix.errors import CorruptState, InvalidInput
from skelmix.secagg import stored

RUNS = {"plan": 60, "parquet": 150, "ledger": 600, "csv": 800, "idx-file": 800, "npy": 800}


@pytest.mark.parametrize("name", DECODERS)
def test_examples_are_accepted(name):
    assert all(DECODERS[name].accepts(seed) for seed in DECODERS[name].seeds)


@pytest.mark.parametrize("name", DECODERS)
def test_bytes_near_a_valid_example(name):
    decoder = DECODERS[name]
    seed = int(os.environ.get("SKELMIX_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    print(f"SKELMIX_FUZZ_SEED={seed}")
    chance = random.Random(seed)
    refused = 0
    for _ in range(RUNS.get(name, 1500)):
        data = mutate(chance.choice(decoder.seeds), chance, list(decoder.seeds))
        if decoder.seal is not None and chance.random() < 0.5:
            data = decoder.seal(data)
        refused += not decoder.accepts(data)
    assert refused > 0


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300))
def test_any_bytes(name, data):
    DECODERS[name].accepts(data)


@settings(max_examples=80, deadline=None)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    ),
    key=st.sampled_from(
        ["target", "cohort", "rounds", "mechanism", "bound", "slack", "epsilon", "alignment"]
    ),
)
def test_any_json_in_any_place_of_a_plan(value, key):
    import json

    from fuzz.decoders import PLAN

    DECODERS["plan"].accepts(json.dumps(PLAN | {key: value}).encode())


def test_a_small_gzip_file_that_unpacks_to_much_is_refused(tmp_path, monkeypatch):
    limit = 1 << 20
    monkeypatch.setattr(idx, "LARGEST_PAYLOAD", limit)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(64 * limit), compresslevel=1))
    tracemalloc.start()
    with pytest.raises(CorruptState, match="larger"):
        idx.read_payload(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * limit


def test_a_stored_state_cannot_ask_for_memory():
    """The place of a secret holds a number: it must not become an array of that length."""
    request = DECODERS["messages"].seeds[1]
    state = [stored.VERSION, 5, "masked", request, b"m" * 16, b"s" * 16, b"p" * 80, b"o" * 112, [], b"", b""]
    assert DECODERS["client-state"].accepts(stored.with_digest(msgpack.packb(state)))
    for place in (4, 5, 6):
        state[place] = 2**40
        assert not DECODERS["client-state"].accepts(stored.with_digest(msgpack.packb(state)))


def test_a_numpy_header_cannot_ask_for_memory(tmp_path):
    header = (
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000000), }".ljust(117) + b"\n"
    )
    path = tmp_path / "huge.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64))
    with pytest.raises(InvalidInput):
        open_rows(path)


def test_a_cell_without_end_is_refused(tmp_path):
    (tmp_path / "long.csv").write_bytes(b"1,2\n" + b"3" * 1_000_000 + b",4\n")
    with pytest.raises(InvalidInput):
        open_rows(tmp_path / "long.csv")


def test_an_array_of_python_objects_is_not_unpickled(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(InvalidInput):
        open_rows(tmp_path / "objects.npy")
