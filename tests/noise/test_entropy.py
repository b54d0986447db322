"""Facts about the one door for randomness."""

import copy
import os
import pickle
import threading

import numpy as np
import pytest

from helpers.hypothesis_tests import follows
from helpers.injected_entropy import InjectedEntropy
from skelmix.errors import InvalidInput
from skelmix.noise import entropy as module
from skelmix.noise.entropy import ReproducibleEntropy, SystemEntropy, system_entropy


class _NistKey(module._Keystream):
    """Key and counter of NIST SP 800-38A, F.5.5 (CTR-AES256)."""

    def next_key(self) -> bytes:
        return bytes.fromhex(
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
        )


NIST_PLAIN = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
NIST_CIPHER = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")


@pytest.mark.parametrize("size", [32, 5000])
def test_the_keystream_is_aes_256_ctr_as_nist_prints_it(size):
    out = bytearray(size)
    _NistKey().read_into(memoryview(out))
    assert bytes(a ^ b for a, b in zip(out[:32], NIST_PLAIN, strict=True)) == NIST_CIPHER


def test_a_key_serves_sixteen_mebibytes_and_is_then_replaced(monkeypatch):
    keys = []
    monkeypatch.setattr(module.os, "urandom", lambda n: keys.append(n) or bytes([len(keys)]) * n)
    source = SystemEntropy()
    out = np.empty(1 << 20, np.uint8)
    for _ in range(16):
        source.fill(out)
    assert keys == [48]
    before = out.copy()
    source.fill(out)
    assert keys == [48, 48]
    assert not np.array_equal(before, out)


def test_small_and_large_requests_never_overlap():
    source = ReproducibleEntropy(1)
    pieces = [source.bytes(n) for n in (7, 4096, 4089, 1, 100_000, 4000, 4000, 16)]
    windows = set()
    for piece in pieces:
        if len(piece) >= 16:
            blocks = {piece[i : i + 8] for i in range(0, len(piece) - 7, 8)}
            assert not windows & blocks
            windows |= blocks


@pytest.mark.parametrize("make", [SystemEntropy, lambda: ReproducibleEntropy(3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64, np.float32])
def test_every_byte_of_the_array_is_filled(make, dtype):
    source = make()
    out = np.zeros((3, 50_000), dtype)
    seen = np.zeros(out.nbytes, bool)
    for _ in range(12):  # a byte stays zero twelve times with probability 2^-96
        source.fill(out)
        seen |= out.reshape(-1).view(np.uint8) != 0
    assert seen.all()


def test_empty_requests_are_fine():
    SystemEntropy().fill(np.empty((0, 3)))
    assert SystemEntropy().bytes(0) == b""


def test_arrays_that_cannot_be_filled_are_refused():
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    for bad in (np.zeros((4, 4))[:, ::2], frozen, bytearray(4), np.array([None])):
        with pytest.raises(InvalidInput, match="out"):
            SystemEntropy().fill(bad)


def test_a_forked_child_does_not_repeat_its_parent():
    source = system_entropy()
    source.bytes(16)  # the stream exists before the fork
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, source.bytes(64))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 64) != source.bytes(64)
    os.close(read)
    os.close(write)


def test_a_fork_that_keeps_the_process_number_still_changes_the_stream(monkeypatch):
    source = SystemEntropy()
    source.bytes(1)
    before = source._local.stream
    module._count_fork()
    source.bytes(1)
    assert source._local.stream is not before


def test_threads_draw_different_streams_from_one_source():
    source, drawn = SystemEntropy(), []
    threads = [threading.Thread(target=lambda: drawn.append(source.bytes(64))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 8


def test_threads_share_a_reproducible_stream_without_repeats():
    source, drawn = ReproducibleEntropy(5), []
    threads = [
        threading.Thread(target=lambda: drawn.extend(source.bytes(16) for _ in range(200))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = ReproducibleEntropy(5)
    assert set(drawn) == {again.bytes(16) for _ in range(800)}


@pytest.mark.parametrize("source", [SystemEntropy(), ReproducibleEntropy(1)])
def test_no_stream_can_be_pickled_or_copied(source):
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            duplicate(source)


def test_reproducible_entropy_repeats_itself_and_says_that_it_is_not_private():
    assert ReproducibleEntropy(7).bytes(100) == ReproducibleEntropy(7).bytes(100)
    assert ReproducibleEntropy(7).spawn().bytes(100) == ReproducibleEntropy(7).spawn().bytes(100)
    assert "NOT PRIVATE" in repr(ReproducibleEntropy(7))
    assert "7" not in repr(ReproducibleEntropy(7))
    assert "NOT PRIVATE" in ReproducibleEntropy.__doc__


def test_reproducible_streams_differ_by_seed_type_and_by_spawn():
    parent = ReproducibleEntropy(b"a")
    sources = [
        parent,
        parent.spawn(),
        parent.spawn(),
        ReproducibleEntropy(1),
        ReproducibleEntropy(b"1"),
        ReproducibleEntropy(-1),
    ]
    assert len({source.bytes(16) for source in sources}) == len(sources)


def test_bad_seeds_and_bounds_are_refused():
    for seed in (1.5, "1", None, True):
        with pytest.raises(InvalidInput, match="seed"):
            ReproducibleEntropy(seed)
    with pytest.raises(InvalidInput, match="bound"):
        SystemEntropy().integers_below(0)
    with pytest.raises(InvalidInput, match="count"):
        SystemEntropy().bytes(-1)


def test_integers_below_rejects_what_lies_outside_and_keeps_the_rest_uniform():
    kept = [InjectedEntropy(bytes([b]), b"\x00").integers_below(5) for b in range(256)]
    assert [kept.count(value) for value in range(1, 5)] == [32] * 4
    assert kept.count(0) == 32 + 3 * 32  # after a rejected byte comes the injected zero


@pytest.mark.parametrize("bound", [2, 255, 256, 257, 1 << 64, 10**30])
def test_integers_below_stay_below(bound):
    drawn = [SystemEntropy().integers_below(bound) for _ in range(50)]
    assert all(0 <= value < bound for value in drawn)


def test_bytes_are_uniform():
    out = np.empty(1 << 22, np.uint8)
    SystemEntropy().fill(out)
    cuts = range(0, 255, 5)
    assert follows(out, lambda k: (k + 1) / 256, cuts)
    assert not follows(np.where(out == 7, 8, out), lambda k: (k + 1) / 256, range(255))
