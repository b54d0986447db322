"""Gaussian certificates and the ε that they give: the public names of this package.

`gdp_certificate`, `integer_gdp_certificate` and `flat_certificate` turn the noise of one round into a
Gaussian mechanism that dominates it; `pld_epsilon`, `composed_delta` and `largest_mu` account for Gaussians
by privacy-loss distributions.
"""

from skelmix.accounting.gaussian.certificate import (
    GaussianCertificate,
    gaussian_certificate,
    gdp_certificate,
    integer_gdp_certificate,
)
from skelmix.accounting.gaussian.flat import flat_certificate
from skelmix.accounting.gaussian.pld import (
    composed_delta,
    composed_epsilon,
    gaussian_pld_epsilon,
    largest_mu,
    pld_epsilon,
)

__all__ = [
    "GaussianCertificate",
    "composed_delta",
    "composed_epsilon",
    "flat_certificate",
    "gaussian_certificate",
    "gaussian_pld_epsilon",
    "gdp_certificate",
    "integer_gdp_certificate",
    "largest_mu",
    "pld_epsilon",
]
