"""Who takes part in a round: the draw that the plan's accounting is about, whatever the strategy proposes."""

from __future__ import annotations

from fractions import Fraction

from skelmix.errors import InvalidInput, RoundFailed
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.planning import Cohort
from skelmix.rounds.sampling import fixed_size, poisson


def draw(cohort: Cohort, proposed: set[int], entropy: Entropy | None = None) -> set[int]:
    """The cohort of a round, from the nodes that the strategy proposes (let it propose all).

    "none": all of them. "poisson": each with probability expected/population, independently. "fixed":
    `expected` of them, all subsets alike; exactly `expected` proposed nodes are taken as the strategy's own
    uniform draw. Fewer than `population` nodes cannot be sampled at the rate that "fixed" was accounted for:
    `RoundFailed`, like an empty draw. Where the accounting needs to know them all, more nodes than the plan's
    population raise `InvalidInput`.
    """
    source = entropy or system_entropy()
    nodes, size = sorted(proposed), cohort.expected
    if cohort.sampling == "poisson" and size < cohort.population:
        places = poisson(len(nodes), Fraction(size, cohort.population), source)
        chosen = {nodes[place] for place in places}
    elif len(nodes) > cohort.population:
        raise InvalidInput(
            f"{len(nodes)} nodes take part, the plan is for {cohort.population}: make it with this population"
        )
    elif cohort.sampling != "fixed" or size in (len(nodes), cohort.population):
        chosen = set(nodes)
    elif len(nodes) < cohort.population:
        raise RoundFailed(
            f"{len(nodes)} of {cohort.population} nodes are here: drawing {size} of them would sample each "
            "more often than the plan accounts for; wait for the others"
        )
    else:
        chosen = {nodes[place] for place in fixed_size(len(nodes), size, source)}
    if not chosen:
        raise RoundFailed("nobody was drawn into the round")
    return chosen
