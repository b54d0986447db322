"""Integer noise laws: Poisson, Skellam, discrete Gaussian, binomial.

Laws are frozen and comparable. A float parameter stands for its exact binary value, an int or a Fraction for
itself, and a NumPy scalar for the number that it holds; equal parameters make equal laws, whatever their
type. `pmf` and `log_pmf` are float64, for analysis only; sampling and certified accounting use balls
(`masses`), of which `pmf_ball` and `cdf_ball` give single ones.
"""

from __future__ import annotations

from skelmix.noise.binomial import Binomial
from skelmix.noise.gaussian import DiscreteGaussian, DiscreteGaussianSum
from skelmix.noise.law import BallLaw, Law
from skelmix.noise.poissonian import Poisson, Skellam

__all__ = ["BallLaw", "Binomial", "DiscreteGaussian", "DiscreteGaussianSum", "Law", "Poisson", "Skellam"]
