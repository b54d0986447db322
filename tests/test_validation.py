"""Each kind of bad input has its error, and the message names argument, value and remedy."""

import re
from functools import partial

import numpy as np
import pytest

from skelmix import validation as v
from skelmix.errors import InvalidInput, SkelmixError


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "3", None, True])
def test_positive_refuses(value):
    with pytest.raises(InvalidInput, match="epsilon = "):
        v.positive(epsilon=value)


@pytest.mark.parametrize("value", [0, 1, -0.1, 2, float("nan")])
def test_delta_outside_zero_and_one_is_refused(value):
    with pytest.raises(InvalidInput, match=r"delta = .*strictly between 0 and 1"):
        v.probability(delta=value)


@pytest.mark.parametrize("value", [0, 33, -1, 8.0, True, "8"])
def test_bits_outside_1_to_32_are_refused(value):
    with pytest.raises(InvalidInput, match=r"bits = .*1\.\.32"):
        v.bits(value)


@pytest.mark.parametrize("value", [1, 8, 32, np.int64(16)])
def test_bits_inside_are_taken(value):
    v.bits(value)


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (v.positive, 0),
        (v.positive, "3"),
        (v.positive, float("nan")),
        (v.positive, 10**400),
        (v.positive, 10**5000),
        (v.non_negative, -1),
        (v.probability, 1.5),
        (v.fraction, 1),
        (partial(v.whole, 0), -1),
        (partial(v.whole, 1, 32), 33),
        (partial(v.whole, 1, 32), 10**5000),
        (partial(v.whole, 1), 1.5),
        (partial(v.one_of, ("poisson", "fixed")), "bernoulli"),
    ],
    ids=lambda value: "",  # pytest cannot print the longest number either
)
def test_every_message_names_argument_value_and_remedy(check, value):
    with pytest.raises(InvalidInput) as error:
        check(noise=value)
    shown = "a number of thousands" if value == 10**5000 else repr(value)
    assert re.fullmatch(rf"noise = {re.escape(shown)}.*: must be .+; .*\b(pass|take) .+", str(error.value))


def test_cohort_larger_than_population_is_refused():
    with pytest.raises(InvalidInput, match=r"expected = 11.*population \(10\)"):
        v.cohort_within(11, 10)


@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5])
def test_fraction_refuses(value):
    with pytest.raises(InvalidInput, match="dropout"):
        v.fraction(dropout=value)


def test_a_word_that_is_not_known_lists_those_that_are():
    with pytest.raises(InvalidInput, match="one of poisson, fixed"):
        v.one_of(("poisson", "fixed"), sampling="bernoulli")


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.zeros(4), "shape"),
        (np.zeros((2, 4)), "shape"),
        (np.zeros((1, 2, 3)), "shape"),
        (np.zeros((0, 3)), "empty"),
        (np.zeros(3, dtype=np.float16), "dtype"),
        (np.zeros(3, dtype=bool), "dtype"),
        (np.array(["a", "b", "c"]), "dtype"),
        (np.zeros(3, dtype=complex), "dtype"),
    ],
)
def test_vectors_refused(vectors, message):
    with pytest.raises(InvalidInput, match=message):
        v.real_vectors(vectors, 3)


def test_vectors_are_not_copied_and_one_becomes_a_row():
    x = np.ones(3, dtype=np.float32)
    rows = v.real_vectors(x, 3)
    assert rows.shape == (1, 3)
    assert np.shares_memory(rows, x)


def test_every_error_has_the_one_base_class():
    import skelmix.errors as errors

    named = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(named) > 5
    assert all(issubclass(kind, SkelmixError) for kind in named)
