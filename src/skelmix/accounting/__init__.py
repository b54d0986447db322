"""Privacy bounds: numbers only. Public: what answers questions about a plan without a mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.accounting.gaussian.certificate import GaussianCertificate, gaussian_certificate
    from skelmix.accounting.gaussian.participation import aggregator_epsilon, largest_mu_against_aggregator
    from skelmix.accounting.gaussian.pld import gaussian_pld_epsilon
    from skelmix.accounting.participations import Participations, smallest_cap
    from skelmix.accounting.prediction import PredictedError

__all__ = [
    "GaussianCertificate",
    "Participations",
    "PredictedError",
    "aggregator_epsilon",
    "gaussian_certificate",
    "gaussian_pld_epsilon",
    "largest_mu_against_aggregator",
    "smallest_cap",
]

_HOMES = {
    "gaussian.certificate": ("GaussianCertificate", "gaussian_certificate"),
    "gaussian.participation": ("aggregator_epsilon", "largest_mu_against_aggregator"),
    "gaussian.pld": ("gaussian_pld_epsilon",),
    "participations": ("Participations", "smallest_cap"),
    "prediction": ("PredictedError",),
}

__getattr__ = lazily(__name__, _HOMES)
