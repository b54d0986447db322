"""Work on several threads: everything is done once, failures come out, generators are not drained ahead."""

import threading

import pytest

from skelmix.encoding.threads import at_most, for_each, worker_count
from skelmix.errors import InvalidInput


@pytest.mark.parametrize("count", [0, 1, 2, 50])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_item_is_done_once(count, threads):
    done, lock = [], threading.Lock()

    def job(item):
        with lock:
            done.append(item)

    with at_most(threads):
        for_each(iter(range(count)), job)
    assert sorted(done) == list(range(count))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_is_raised_and_stops_the_pulling(threads):
    pulled = []

    def source():
        for item in range(10_000):
            pulled.append(item)
            yield item

    def job(item):
        if item == 3:
            raise KeyError("three")

    with at_most(threads), pytest.raises(KeyError, match="three"):
        for_each(source(), job)
    assert len(pulled) < 10_000


def test_items_are_pulled_in_the_callers_thread_and_not_far_ahead():
    here, most = threading.get_ident(), 0
    lock = threading.Lock()
    finished = 0

    def source():
        nonlocal most
        for item in range(200):
            assert threading.get_ident() == here
            with lock:
                most = max(most, item - finished)
            yield item

    def job(item):
        nonlocal finished
        with lock:
            finished += 1

    for_each(source(), job)
    assert finished == 200
    assert most <= 2 * worker_count()  # one waiting and one under way for each other thread, and one here


@pytest.mark.skipif(worker_count() < 2, reason="needs two cores")
def test_the_caller_works_beside_the_other_threads():
    together, running = threading.Barrier(2, timeout=30), set()

    def job(item):
        running.add(threading.get_ident())
        together.wait()

    with at_most(2):
        for_each(iter(range(20)), job)
    assert threading.get_ident() in running
    assert len(running) == 2


@pytest.mark.skipif(worker_count() < 2, reason="needs two cores")
def test_work_inside_a_job_stays_in_its_thread():
    inside = []
    for_each(iter(range(8)), lambda item: inside.append(worker_count()))
    assert inside == [1] * 8


def test_a_source_that_fails_ends_the_threads():
    def source():
        yield from range(5)
        raise OSError("the disk is gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="gone"):
        for_each(source(), lambda item: None)
    assert threading.active_count() == before


def test_the_limit_ends_with_the_block():
    before = worker_count()
    with at_most(1):
        assert worker_count() == 1
    assert worker_count() == before
    with pytest.raises(InvalidInput), at_most(0):
        pass
