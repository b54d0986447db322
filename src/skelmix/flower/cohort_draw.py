"""Who takes part in a round: the draw that the plan's accounting is about, whatever the strategy proposes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from skelmix.errors import InvalidInput, RoundFailed
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.planning import Cohort
from skelmix.rounds.sampling import fixed_size, poisson


def draw(
    cohort: Cohort,
    proposed: set[int],
    entropy: Entropy | None = None,
    *,
    charge: Callable[[], None] = lambda: None,
    connected: int | None = None,
) -> set[int]:
    """The cohort of a round, from the nodes that the strategy proposes (let it propose all).

    "none": all of them. "poisson": each with probability expected/population, independently. "fixed":
    `expected` of them, all subsets alike; exactly `expected` of more that are connected are taken as the
    strategy's own uniform draw. Drawing from fewer than `population` nodes, whoever draws, would sample each
    more often than "fixed" was accounted for: `RoundFailed`, like an empty draw. Where the accounting needs
    to know them all, more nodes than the plan's population raise `InvalidInput`.

    connected: how many nodes are connected, those proposed among them; by default these are all. charge:
    called before a cohort is drawn whose members are secret: what becomes of it may reveal them.
    """
    source = entropy or system_entropy()
    nodes, size = sorted(proposed), cohort.expected
    if cohort.sampling == "poisson" and cohort.sampled:
        charge()
        places = poisson(len(nodes), Fraction(size, cohort.population), source)
        cohort_nodes = {nodes[place] for place in places}
    elif not cohort.sampled:
        _check_population(cohort, len(nodes))
        cohort_nodes = set(nodes)
    else:
        here = len(nodes) if connected is None else connected
        own_draw = size == len(nodes) < here
        _check_population(cohort, here if own_draw else len(nodes))
        charge()
        cohort_nodes = (
            set(nodes) if own_draw else {nodes[place] for place in fixed_size(len(nodes), size, source)}
        )
    if not cohort_nodes:
        raise RoundFailed("nobody was drawn into the round")
    return cohort_nodes


def _check_population(cohort: Cohort, nodes: int) -> None:
    """Raise unless the number of nodes is the population that the accounting counts on."""
    if nodes > cohort.population:
        raise InvalidInput(
            f"{nodes} nodes take part, the plan is for {cohort.population}: make it with this population"
        )
    if cohort.sampled and nodes < cohort.population:
        raise RoundFailed(
            f"{nodes} of {cohort.population} nodes are here: drawing {cohort.expected} of them would sample "
            "each more often than the plan accounts for; wait for the others"
        )
