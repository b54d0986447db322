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
    drawn_by_strategy: bool = True,
) -> set[int]:
    """The cohort of a round, from the nodes that the strategy proposes (let it propose all).

    "none": all of them. "poisson": each with probability expected/population, independently. "fixed":
    `expected` of them, all subsets alike; exactly `expected` nodes are taken as the strategy's own uniform
    draw if `drawn_by_strategy`, which those who happen to be connected are not. Fewer than `population` nodes
    cannot be sampled at the rate that "fixed" was accounted for: `RoundFailed`, like an empty draw. Where the
    accounting needs to know them all, more nodes than the plan's population raise `InvalidInput`.

    charge: called before a cohort is drawn whose members are secret: what becomes of it may reveal them.
    """
    source = entropy or system_entropy()
    nodes, size = sorted(proposed), cohort.expected
    own_draw = drawn_by_strategy and size == len(nodes)
    if cohort.sampling == "poisson" and cohort.sampled:
        charge()
        places = poisson(len(nodes), Fraction(size, cohort.population), source)
        cohort_nodes = {nodes[place] for place in places}
    elif len(nodes) > cohort.population:
        raise InvalidInput(
            f"{len(nodes)} nodes take part, the plan is for {cohort.population}: make it with this population"
        )
    elif not cohort.sampled:
        cohort_nodes = set(nodes)
    elif own_draw:
        charge()
        cohort_nodes = set(nodes)
    elif len(nodes) < cohort.population:
        raise RoundFailed(
            f"{len(nodes)} of {cohort.population} nodes are here: drawing {size} of them would sample each "
            "more often than the plan accounts for; wait for the others"
        )
    else:
        charge()
        cohort_nodes = {nodes[place] for place in fixed_size(len(nodes), size, source)}
    if not cohort_nodes:
        raise RoundFailed("nobody was drawn into the round")
    return cohort_nodes
