"""The names of owners: what is one name, and what is none."""

import numpy as np

from skelmix.federated.owners import owner_numbers


def test_an_owner_is_one_however_the_name_was_written():
    names = ["Zoë", "Zoe\u0308", " Zoë", "Zoë\t"]
    assert owner_numbers(names).tolist() == [0] * 4
    assert owner_numbers(["Zoë", "Zoe", "zoë"]).tolist() == [1, 0, 2]


def test_an_array_of_text_hides_no_missing_owner():
    """NumPy writes a missing name as text, and all who have none would be one person."""
    owners = np.array(["ann", np.nan, "bob", float("nan")])
    assert owners.dtype.kind == "U"
    assert owner_numbers(owners).tolist() == [0, -1, 1, -1]
    assert owner_numbers(["", "NA", "None", " null ", "-"]).tolist() == [-1] * 5


def test_one_long_name_costs_its_own_memory_only():
    """An array of text gives every record the room of the longest name: here 400 GB."""
    assert owner_numbers(["a" * 1_000_000, *range(100_000)]).max() == 100_000


def test_names_differ_where_they_end_in_zero_bytes():
    assert owner_numbers(["a", "a\0"]).tolist() == [0, 1]
