import os
import signal
import threading
import time

import numpy as np
import pytest

from skelmix.noise import scratch_memory as room
from skelmix.noise.scratch_memory import scratch


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch):
    monkeypatch.setattr(room, "_kept", [])


def test_memory_is_lent_again_when_it_fits_and_only_then():
    with scratch((4, 256), np.float32) as first:
        assert first.shape == (4, 256)
        assert first.dtype == np.float32
        assert first.flags.c_contiguous
        address = first.ctypes.data
    with scratch(2000, np.uint16) as second, scratch(2000, np.uint16) as third:
        assert second.ctypes.data == address
        assert not np.shares_memory(second, third)
    with scratch(100_000, np.int32) as large:
        assert not np.shares_memory(large, second)


def test_what_is_lent_belongs_to_one_borrower():
    clashes = []

    def work(name):
        for _ in range(300):
            with scratch(5000, np.int32) as mine:
                mine[:] = name
                if not (mine == name).all():
                    clashes.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes


def test_memory_comes_back_after_a_failure_and_the_hoard_is_bounded(monkeypatch):
    monkeypatch.setattr(room, "_MOST_KEPT", 5000)
    with pytest.raises(RuntimeError), scratch(4000, np.uint8):
        raise RuntimeError
    assert [buffer.size for buffer in room._kept] == [4000]
    with scratch(1500, np.uint8):
        pass
    assert [buffer.size for buffer in room._kept] == [1500]  # the latest stays


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_while_the_lock_is_held_works():
    with scratch(4000, np.uint8):
        pass
    with room._lock:
        child = os.fork()
        if child == 0:
            with scratch(4000, np.uint8):
                os._exit(7)
    for _ in range(200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert done
    assert os.waitstatus_to_exitcode(status) == 7


def test_nothing_can_be_borrowed():
    with scratch(0, np.int32) as none, scratch((3, 0), np.float64) as empty:
        assert none.shape == (0,)
        assert empty.shape == (3, 0)
