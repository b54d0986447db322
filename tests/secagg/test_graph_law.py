"""Sparse graphs that rest on a law of dropouts: whether rounds open, and who joins them."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binom, hypergeom

from skelmix.accounting.openings import likely_survivors
from skelmix.errors import InvalidInput
from skelmix.secagg.client import Client
from skelmix.secagg.failures import UnsafeRequest
from skelmix.secagg.graph import Graph, choose, meets, opens, sparse
from skelmix.secagg.in_memory import ideal_sum, secure_sum
from skelmix.secagg.keys import KeyPair
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings

TARGET = 2.0**-42


def by_law(graph: Graph, rate: float) -> float:
    """n times the probability that too few of one's neighbours answer, one of them left out."""
    return float(graph.participants * binom.cdf(graph.share_threshold - 1, graph.degree - 1, 1 - rate))


def at_threshold(graph: Graph, threshold: int) -> float:
    """The same with exactly so many answers, the one in question among them."""
    n = graph.participants
    return float(n * hypergeom.cdf(graph.share_threshold - 1, n - 1, threshold - 1, graph.degree))


@pytest.mark.parametrize(
    ("threshold", "rate", "before", "worst_case", "by_the_law"),
    [
        (216, 0.0, 34, 32, 26),
        (176, 0.1, 54, 50, 38),
        (142, 0.2, 78, 68, 52),
        (113, 0.3, 108, 88, 70),
        (168, 0.1, 58, 54, 42),
    ],
)
def test_degrees_of_240_participants(threshold, rate, before, worst_case, by_the_law):
    assert choose(240, threshold).degree == worst_case < before
    graph = choose(240, threshold, dropout_rate=rate)
    assert graph.degree == by_the_law
    assert by_law(graph, rate) < TARGET
    assert at_threshold(graph, threshold) < 1e-6
    slimmer = [Graph(240, by_the_law - 2, t) for t in range(2, by_the_law - 1)]
    assert not any(meets(each, threshold, 0) and opens(each, threshold, rate) for each in slimmer)


def test_the_page_states_these_degrees():
    page = (Path(__file__).parents[2] / "docs/explanation/secure-aggregation.md").read_text()
    without = []
    for n, rate, collude in (
        (240, 0.05, 0.05), (240, 0.1, 0.05), (240, 0.2, 0.1), (1000, 0.1, 0.05), (1000, 0.3, 0.1),
        (3000, 0.1, 0.05),
    ):  # fmt: skip
        colluding, likely = int(n * collude), likely_survivors(n, rate)
        worst = choose(n, math.ceil(n * (1 - rate)), colluding=colluding)
        law = choose(n, likely, colluding=colluding, dropout_rate=rate)
        row = f"| {n:,} | {rate:.0%} | {collude:.0%} | {worst.degree} | {worst.share_threshold} | {rate:g} "
        row += f"| {likely:,} | {law.degree} | {law.share_threshold} |"
        assert row.replace("%", " %") in page
        without.append(str(choose(n, likely, colluding=colluding).degree))
    assert f"{', '.join(without[:-1])} and {without[-1]} neighbours" in page


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.1, 0.25, 0.5, 0.999, 1 - 2.0**-30])
def test_whether_a_graph_opens_is_as_scipy_has_it(rate):
    found = set()
    for n, threshold, degree in ((120, 100, 24), (240, 176, 38), (240, 113, 62), (1000, 700, 80)):
        for t in range(1, degree + 2):
            graph = Graph(n, degree, t)
            worst, lawful = at_threshold(graph, threshold), by_law(graph, rate)
            expected = worst < TARGET or (worst < 2.0**-20 and lawful < TARGET)
            assert opens(graph, threshold, rate) == expected
            assert opens(graph, threshold) == (worst < TARGET)
            found.add((expected, worst < TARGET))
    assert (False, False) in found
    assert ((True, False) in found) == (rate <= 0.25)


def test_of_the_full_graph_as_many_must_answer_as_of_the_round():
    assert opens(Graph(240, 239, 216), 216)
    assert not opens(Graph(240, 239, 217), 216)
    assert not opens(Graph(240, 38, 13), 241, 0.1)


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(1, 10), Fraction(2, 5)])
@pytest.mark.parametrize(("n", "degree"), [(9, 4), (12, 6)])
def test_the_law_s_bound_holds_of_every_round_of_a_small_ring(n, degree, rate):
    """Every pattern of answers with its exact probability; one participant may do what it likes."""
    hoods = [
        [(place + step) % n for step in range(-degree // 2, degree // 2 + 1) if step] for place in range(n)
    ]
    failing = [Fraction(0)] * (degree + 1)
    for answers in product((0, 1), repeat=n - 1):
        answered = (0, *answers)  # the first never does: no behaviour of it leaves fewer answers
        least = min(sum(answered[near] for near in hood) for hood in hoods)
        probability = (1 - rate) ** sum(answers) * rate ** (n - 1 - sum(answers))
        for t in range(least + 1, degree + 1):
            failing[t] += probability
    for t in range(1, degree + 1):
        few = sum(
            comb(degree - 1, j) * (1 - rate) ** j * rate ** (degree - 1 - j) for j in range(min(t, degree))
        )
        assert failing[t] <= n * few
    assert failing[degree] == 1  # its neighbours would need an answer of its own


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(100, 1500),
    kept=st.floats(0.2, 1.0),
    collude=st.floats(0.0, 0.15),
    rate=st.none() | st.floats(0.0, 0.6),
)
@example(n=240, kept=0.9, collude=0.0, rate=0.0)
@example(n=240, kept=0.7, collude=0.1, rate=0.001)
def test_what_is_searched_for_is_what_is_judged(n, kept, collude, rate):
    threshold, colluding = math.ceil(kept * n), int(collude * n)
    graph, careful = sparse(n, threshold, colluding, rate), sparse(n, threshold, colluding)
    if careful is not None:  # a law costs no neighbours
        assert graph is not None
        assert graph.degree <= careful.degree
    if graph is not None:
        assert meets(graph, threshold, colluding)
        assert opens(graph, threshold, rate)
        assert not opens(replace(graph, share_threshold=graph.share_threshold + 1), threshold, rate)


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_rounds_under_the_law_open_and_with_no_more_than_the_threshold_too(rate):
    n, draw = 120, np.random.default_rng(7)
    threshold = likely_survivors(n, rate)
    assert sparse(n, threshold, 0, rate) is not None
    vectors = draw.integers(0, 256, (n, 3), np.uint8)
    gone = [set(np.flatnonzero(draw.random(n) < rate).tolist()), set(range(n - threshold))]
    for missing in gone:
        dropouts = {"masked": missing}
        total = secure_sum(vectors, modulus=256, threshold=threshold, dropouts=dropouts, dropout_rate=rate)
        assert (total == ideal_sum(vectors, modulus=256, dropouts=dropouts)).all()


def asked(offered: Settings, minimum: Settings, n: int = 120) -> tuple[Client, bytes]:
    """A client with these rules of its own, and what a server of these settings asks it."""
    server = Server(offered)
    clients = [Client(p, KeyPair.generate(), minimum_settings=minimum) for p in range(n)]
    for client in clients:
        server.advertise(client.advertise())
    return clients[0], server.close_advertise()[0]


def test_a_client_joins_what_rests_on_the_law_that_it_states_itself():
    careful = Settings(dimension=4, bits=8, threshold=78)
    lawful = replace(careful, dropout_rate=0.1)
    assert lawful.graph(120).degree < careful.graph(120).degree
    for offered, minimum in ((lawful, lawful), (careful, careful), (careful, lawful)):
        client, request = asked(offered, minimum)
        client.share(request)
    for minimum in (careful, replace(careful, dropout_rate=0.2)):
        client, request = asked(lawful, minimum)
        with pytest.raises(UnsafeRequest, match="may stay closed; if the plan states a dropout rate"):
            client.share(request)


def test_nobody_but_the_server_s_choice_of_a_graph_looks_at_the_law():
    """With the full graph, or against a malicious server, a law changes nothing."""
    for options in ({"full_graph": True}, {"malicious": True}):
        offered = Settings(dimension=4, bits=8, threshold=100, dropout_rate=0.1, **options)
        assert offered.graph(120) == Graph(120, 119, 100)


@pytest.mark.parametrize("rate", [1.0, -0.1, math.nan])
def test_rates_are_fractions(rate):
    with pytest.raises(InvalidInput, match="dropout_rate"):
        Settings(dimension=4, bits=8, threshold=3, dropout_rate=rate)
    with pytest.raises(InvalidInput, match="dropout_rate"):
        choose(240, 216, dropout_rate=rate)
