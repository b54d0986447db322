"""The privacy bounds by name: one class each, registered here."""

from skelmix.mechanisms.bounds.bound import Bound, ProvedEpsilon, slack_budget
from skelmix.mechanisms.bounds.composition import CompositionBound
from skelmix.mechanisms.bounds.gaussian import CentralBound, FlatBound, GaussianBound, GdpBound
from skelmix.mechanisms.bounds.renyi import PaperBound, RenyiBound

BOUNDS: dict[str, Bound] = {
    bound.name: bound
    for bound in (FlatBound(), GdpBound(), RenyiBound(), PaperBound(), CompositionBound(), CentralBound())
}

__all__ = [
    "BOUNDS",
    "Bound",
    "CentralBound",
    "CompositionBound",
    "FlatBound",
    "GaussianBound",
    "GdpBound",
    "PaperBound",
    "ProvedEpsilon",
    "RenyiBound",
    "slack_budget",
]
