"""The flat certificate."""

from skelmix.accounting.steps import GaussianCertificate
from skelmix.errors import PrivacyUnattainable
from skelmix.noise.laws import Law


def flat_certificate(
    law: Law, radius: float, linf: float, dimension: int, slack: float
) -> GaussianCertificate:
    raise PrivacyUnattainable("the flat certificate is not there yet: use bound='gdp' or bound='rdp'")
