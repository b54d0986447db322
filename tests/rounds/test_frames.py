"""Tables of other libraries are added up by `private_sum`, and their bad columns are named."""

import numpy as np
import pytest

import skelmix as sk
from skelmix.errors import InvalidInput


class Frame:
    """As much of a pandas DataFrame as `private_sum` looks at, where pandas is not installed."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)
        self.dtypes = [np.asarray(values).dtype for values in columns.values()]

    def __getitem__(self, name):
        return np.asarray(self._columns[name])

    def __array__(self, dtype=None, copy=None):
        return np.stack([np.asarray(values, object) for values in self._columns.values()], axis=1)


def frames():
    makers = [Frame]
    for library, name in (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")):
        try:
            makers.append(getattr(__import__(library), name))
        except ImportError:
            continue
    return makers


@pytest.fixture(scope="module")
def plan():
    cohort = sk.Cohort.everyone(4)
    return sk.plan(
        sk.PrivacyTarget(50.0, 1e-5), dimension=2, clip_norm=10, bits=20, bound="gdp", cohort=cohort
    )


@pytest.mark.parametrize("make", frames())
def test_a_table_with_columns_of_several_kinds_is_added_up(make, plan):
    table = make({"age": [1, 2, 3, 4], "stay": [0.5, 1.5, 2.5, 3.5]})
    result = sk.private_sum(table, plan, "simulated")
    assert np.abs(result.estimate - [10, 8]).max() < 7 * result.deviation
    mixed = make({"age": [1, 2, 3, 4], "ill": [True, False, True, True]})
    assert sk.private_sum(mixed, plan, "simulated").participants == 4


@pytest.mark.parametrize("make", frames())
def test_a_column_of_text_or_with_gaps_is_named_or_refused(make, plan):
    with pytest.raises(InvalidInput, match="column 'ward' holds 'north' in row 0"):
        sk.private_sum(make({"age": [1, 2, 3, 4], "ward": ["north"] * 4}), plan, "simulated")
    with pytest.raises(InvalidInput, match="row 1"):
        sk.private_sum(make({"age": [1.0, 2, 3, 4], "stay": [1.0, None, 2, 3]}), plan, "simulated")


def test_a_list_of_lists_is_added_up_and_the_bad_one_named(plan):
    assert sk.private_sum([[1, 2], [3, 4], [0.5, 1], [0, 0]], plan, "simulated").participants == 4
    with pytest.raises(InvalidInput, match=r"vectors\[2\]"):
        sk.private_sum([[1, 2], [3, 4], [5], [7, 8]], plan, "simulated")


def test_silos_may_hold_tables():
    target = sk.PrivacyTarget(50.0, 1e-5)
    plan = sk.plan(target, dimension=2, clip_norm=10, bits=20, bound="gdp", cohort=sk.Silos(2, 4, 4))
    north, south = Frame({"a": [1, 2], "b": [1.5, 2]}), [[3, 4], [1, 1]]
    result = sk.private_sum([north, south], plan, "simulated")
    assert np.abs(result.estimate - [7, 8.5]).max() < 7 * result.deviation


def test_the_deviation_is_that_of_the_error():
    target, cohort = sk.PrivacyTarget(5.0, 1e-5), sk.Cohort.everyone(4)
    plan = sk.plan(target, dimension=2, clip_norm=10, bits=20, bound="gdp", cohort=cohort)
    vectors = np.array([[1.0, 2], [3, 4], [5, 6], [7, 1]])
    errors = [
        sk.private_sum(vectors, plan, "simulated", round=round).estimate - vectors.sum(axis=0)
        for round in range(2_000)
    ]
    # 4,000 errors: their root mean square has a relative deviation of 1.1 %
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(plan.predicted.deviation, rel=0.08)
