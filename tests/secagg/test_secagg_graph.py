"""Degree and Shamir threshold against scipy's hypergeometric tails, and the shape of the graph."""

import math

import pytest
from scipy.stats import hypergeom

from skelmix.errors import InvalidInput
from skelmix.secagg.graph import FAILURE_BITS, Graph, choose, meets, neighbourhood, opens, sparse

CASES = [
    (n, math.ceil(n * keep), int(n * collude))
    for n in (100, 240, 1000)
    for keep in (0.95, 0.8)
    for collude in (0, 0.1)
]


def failure(graph: Graph, threshold: int, colluding: int) -> float:
    """Union bound over participants and the three ways to fail, from scipy's hypergeometric law."""
    n, k, t = graph.participants, graph.degree, graph.share_threshold
    exposed = hypergeom.sf(t - 1, n - 1, colluding, k)
    lost = hypergeom.cdf(t - 1, n - 1, threshold - 1, k)
    bad = n - threshold + colluding
    cut = math.prod((bad - i) / (n - i) for i in range(k)) if k <= bad else 0.0
    return n * (exposed + lost) + n * (n - k + 1) / 2 * cut


@pytest.mark.parametrize(("n", "threshold", "colluding"), CASES)
def test_the_failure_probability_is_below_2_to_minus_40(n, threshold, colluding):
    graph = choose(n, threshold, colluding=colluding)
    if graph.full:
        assert graph.share_threshold == threshold
        return
    assumed = max(colluding, math.ceil(n / 20))
    assert failure(graph, threshold, assumed) < 2.0**-FAILURE_BITS
    # one more in the threshold, or two fewer neighbours, and the target is missed
    assert failure(Graph(n, graph.degree, graph.share_threshold + 1), threshold, assumed) > 2.0**-42
    slimmer = [failure(Graph(n, graph.degree - 2, t), threshold, assumed) for t in range(1, graph.degree)]
    assert min(slimmer) > 2.0**-42


def test_most_of_the_cases_above_are_sparse():
    assert sum(not choose(n, t, colluding=c).full for n, t, c in CASES) >= 9


@pytest.mark.parametrize(("n", "threshold", "colluding"), CASES)
def test_a_graph_is_judged_as_the_search_and_scipy_judge_it(n, threshold, colluding):
    graph = sparse(n, threshold, colluding)
    if graph is None:
        assert not any(
            meets(Graph(n, k, t), threshold, colluding) and opens(Graph(n, k, t), threshold)
            for k in (10, n // 4 * 2)
            for t in range(1, k + 1)
        )
        return
    k, t = graph.degree, graph.share_threshold
    assert meets(graph, threshold, colluding)
    assert opens(graph, threshold)
    assert not opens(Graph(n, k, t + 1), threshold)
    slimmer = [Graph(n, k - 2, s) for s in range(1, k)]
    assert not any(meets(each, threshold, colluding) and opens(each, threshold) for each in slimmer)
    assumed = max(colluding, math.ceil(n / 20))
    for degree in (k, k + 2):  # the rows of dropouts and colluders only get rarer with the degree
        for s in range(degree + 3):
            exposed = n * hypergeom.sf(s - 1, n - 1, assumed, degree)
            lost = n * hypergeom.cdf(s - 1, n - 1, threshold - 1, degree)
            secret = 2 <= s <= degree <= n // 2 and exposed < 2.0**-42
            assert meets(Graph(n, degree, s), threshold, colluding) == secret
            assert opens(Graph(n, degree, s), threshold) == (lost < 2.0**-42)


@pytest.mark.parametrize("graph", [(98, 40, 20), (400, 51, 25), (400, 202, 100), (400, 0, 2), (400, 40, 1)])
def test_odd_shapes_meet_nothing(graph):
    assert not meets(Graph(*graph), graph[0] - 1, 0)


def test_degree_grows_slowly_with_the_number_of_participants():
    degrees = [choose(n, math.ceil(0.9 * n)).degree for n in (240, 1000, 3000, 10_000)]
    assert degrees == sorted(degrees)
    assert degrees[1] <= 1.5 * degrees[0]
    assert degrees[3] < 2 * degrees[0]


@pytest.mark.parametrize("n", [1, 2, 5, 50, 99])
def test_small_rounds_have_the_full_graph_with_the_round_s_threshold(n):
    graph = choose(n, max(1, n - 1))
    assert graph == Graph(n, n - 1, max(1, n - 1))
    assert neighbourhood(graph, b"", n - 1) == list(range(n))


def test_the_full_graph_can_be_asked_for_and_hard_cases_fall_back_to_it():
    assert not choose(400, 360).full
    assert choose(400, 360, full=True) == Graph(400, 399, 360)
    assert sparse(100, 50, 20) is None
    assert choose(100, 50, colluding=20).full


def test_neighbourhood_is_mutual_of_the_right_size_and_depends_on_the_seed():
    graph = choose(200, 180)
    hoods = [neighbourhood(graph, b"a", i) for i in range(200)]
    assert all(len(set(hood)) == graph.degree + 1 and i in hood for i, hood in enumerate(hoods))
    assert all(i in hoods[j] for i, hood in enumerate(hoods) for j in hood)
    assert hoods != [neighbourhood(graph, b"b", i) for i in range(200)]


def test_honest_survivors_stay_connected_when_many_leave():
    graph = choose(240, 216)
    gone = set(range(24)) | set(range(100, 112))  # dropouts and colluders, chosen without knowing the seed
    left = set(range(240)) - gone
    for seed in (b"1", b"2", b"3"):
        reached, frontier = set(), {min(left)}
        while frontier:
            reached |= frontier
            frontier = {j for i in frontier for j in neighbourhood(graph, seed, i)} & left - reached
        assert reached == left


@pytest.mark.parametrize(
    ("n", "threshold", "colluding"), [(0, 1, 0), (5, 6, 0), (5, 0, 0), (5, 2, 2), (5, 3, 6)]
)
def test_impossible_thresholds_are_refused(n, threshold, colluding):
    with pytest.raises(InvalidInput):
        choose(n, threshold, colluding=colluding)
