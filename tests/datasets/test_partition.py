"""Partitions: every record has one holder, sizes and skew are as asked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skelmix.datasets.partition import Partition, by_id, equal_shares, label_skew, one_record_each
from skelmix.errors import InvalidInput


@given(st.integers(1, 200), st.data())
def test_equal_shares_are_equal_and_disjoint(records, data):
    each = data.draw(st.integers(1, records))
    partition = equal_shares(records, each, seed=3)
    assert len(partition) == records // each
    assert (partition.sizes == each).all()
    assert len(set(partition.records.tolist())) == len(partition.records)


def test_one_record_each_is_the_identity():
    partition = one_record_each(4)
    assert [partition.records_of(i).tolist() for i in range(len(partition))] == [[0], [1], [2], [3]]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_by_id_gathers_the_records_of_each_id(ids):
    partition = by_id(np.array(ids))
    held = [partition.records_of(i).tolist() for i in range(len(partition))]
    expected = [[at for at, value in enumerate(ids) if value == label] for label in sorted(set(ids))]
    assert held == expected


@given(st.integers(1, 40), st.floats(0.01, 100))
def test_label_skew_shares_are_equal_and_disjoint(participants, concentration):
    labels = np.arange(120) % 7
    partition = label_skew(labels, participants, concentration, seed=1)
    assert len(partition) == participants
    assert (partition.sizes == 120 // participants).all()
    assert len(set(partition.records.tolist())) == len(partition.records)


def test_small_concentration_means_few_labels_a_participant():
    labels = np.arange(5000) % 10

    def labels_held(concentration):
        partition = label_skew(labels, 50, concentration, seed=1)
        return np.mean([len(set(labels[partition.records_of(i)])) for i in range(50)])

    assert labels_held(0.01) < 3
    assert labels_held(1000) > 9.5


@pytest.mark.parametrize(
    ("records", "offsets"),
    [([0, 0], [0, 1, 2]), ([0, 1], [0, 0, 2]), ([0, 1], [0, 1]), ([0, 1], [1, 2]), ([], [0])],
)
def test_shared_records_and_empty_participants_are_refused(records, offsets):
    with pytest.raises(InvalidInput):
        Partition(np.array(records, np.int64), np.array(offsets, np.int64))
