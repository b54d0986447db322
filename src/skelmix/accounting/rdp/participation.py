"""The Rényi curve of a run against an aggregator who sees when a participant takes part."""

from __future__ import annotations

from skelmix.accounting.participations import Participations
from skelmix.accounting.rdp.curve import RdpCurve
from skelmix.accounting.rdp.subsampling import poisson
from skelmix.errors import InvalidInput
from skelmix.validation import positive


def aggregator_curve(curve: RdpCurve, participations: Participations, *, coin: float = 1.0) -> RdpCurve:
    """The Rényi curve of the whole run, from that of one round in which the participant is present.

    The number K of contributions has the same law in both worlds and may be given away; given K = k the
    rounds compose to at most k·τ(α). The moments of the likelihood ratio are then averaged over K:

        (α-1)·τ_run(α) = ln E[exp((α-1)·K·τ(α))],   K ~ Bin(T, q):   T·ln(1 - q + q·exp((α-1)·τ(α))).

    coin: the probability c with which a participant in the cohort secretly sends its vector; one contribution
    then has the c-sampled curve, in both directions (`subsampling.poisson`). Orders at which the result is
    not finite are left out.
    """
    positive(coin=coin)
    if coin > 1:
        raise InvalidInput(f"coin = {coin!r}: must be a probability in (0, 1]; 1 for no coin")
    contribution = curve if coin == 1 else poisson(curve, float(coin))
    values = [
        participations.log_moment((order - 1) * value) / (order - 1)
        for order, value in zip(contribution.orders, contribution.values, strict=True)
    ]
    return RdpCurve.where_finite(contribution.orders, values)
