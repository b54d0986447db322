"""The data of a mechanism, and the interface that every mechanism has."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from skelmix import validation
from skelmix.encoding.rotation import SEED_BYTES, padded
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy

if TYPE_CHECKING:
    from skelmix.accounting.gaussian import GaussianCertificate
    from skelmix.accounting.prediction import PredictedError
    from skelmix.accounting.rdp.curve import RdpCurve
    from skelmix.mechanisms.silo_sum import SiloSum


@dataclass
class EncodeStats:
    """Counts of what happened in a simulation; `encode_sum` adds to them. NOT PRIVATE: never release them.

    clipped_rows: vectors that the clip changed. touched_coordinates: those above an L-infinity clip.
    wrapped_coordinates: those of the noisy sum that left [-m/2, m/2). squared_norms: Σ‖γx‖² of the vectors
    before clipping, on the integer grid; for a subset it is estimated as length/keep times that of the kept
    coordinates.

    Example: `stats = EncodeStats(); mechanism.encode_sum(vectors, round=0, stats=stats)`, then
    `stats.clipped_rows`.
    """

    participants: int = 0
    clipped_rows: int = 0
    touched_coordinates: int = 0
    wrapped_coordinates: int = 0
    squared_norms: float = 0.0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def add(self, other: EncodeStats) -> None:
        """Add what another one counted; safe from several threads."""
        with self._lock:
            for field in fields(self):
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


Shares = int | Fraction | None
"""Over how many participants the noise of a round is divided; None: as many as the mechanism says."""


@dataclass(frozen=True)
class Mechanism(ABC):
    """A mechanism as data: the fields that all mechanisms have in common.

    `total_noise` is the parameter of the *summed* noise, of which each participant adds one share.

    dimension: coordinates of a vector. bits: width of a coordinate on the wire, m = 2^bits. scale: γ.
    clip_norm: Δ, the L2 norm a vector may have. total_noise: Λ of a Skellam, the variance of a Gaussian, the
    trials of a binomial, on the integer grid. shares: how many participants divide it among them, unless a
    round says otherwise. rotation_seed: 32 public bytes. rotate: with False (and scale 1) the steps are the
    paper's plain Algorithms 1 and 2. keep: how many of the rotated coordinates are sent, a public random
    subset in each round; None: all of them. clip_slack: a >= 0; the kept coordinates are clipped to 1 +
    a/√keep times their root-mean-square norm √(keep/length)·γΔ. A larger a clips less and needs more noise.

    Example: `SkellamMixture`; every mechanism has the same methods.
    """

    dimension: int
    bits: int
    scale: float
    clip_norm: float
    total_noise: float
    shares: int = 1
    rotation_seed: bytes = bytes(SEED_BYTES)
    rotate: bool = True
    keep: int | None = None
    clip_slack: float = 0.0

    name: ClassVar[str]
    sends_subsets: ClassVar[bool] = False
    """Whether `keep` may be given."""

    #: whether participants add the noise themselves, so that nobody has to be trusted with their vectors
    distributed: ClassVar[bool] = True

    #: whether the summed noise depends on how many take part, beyond its number of shares
    noise_varies_with_cohort: ClassVar[bool] = True

    noise_is_deviation: ClassVar[bool] = False  #: `noise` is a standard deviation, `total_noise` a variance
    #: whether secure aggregation may add this noise in pieces and remove what a sum turns out not to need
    noise_in_pieces: ClassVar[bool] = False

    #: whether a Gaussian certificate leaves out some total variation, which δ has to pay for
    certificate_leaves_slack: ClassVar[bool] = True

    #: the names of the bounds that a plan may ask for, the likely best first
    known_bounds: ClassVar[tuple[str, ...]]

    #: those that bound="tight" chooses from; None: all of them
    rival_bounds: ClassVar[tuple[str, ...] | None] = None

    #: the bound of its own that is taken where another is asked for: the one from the mechanism's own paper
    stand_ins: ClassVar[Mapping[str, str]] = {}

    #: those that also hold for records in silos, whatever the other records of the silo add up to
    silo_bounds: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def for_bound(cls, bound: str, **fields: Any) -> Self:
        """The mechanism with the clip that goes with this bound; `fields` are all of its other fields."""
        return cls(**fields)

    @classmethod
    def total_from_one(cls, noise: float, shares: int) -> float:
        """`total_noise` from the noise parameter of one participant, as `noise` states it."""
        return noise * shares

    def __post_init__(self) -> None:
        validation.whole(1, 2**28, dimension=self.dimension)
        validation.bits(self.bits)
        validation.positive(scale=self.scale, clip_norm=self.clip_norm, total_noise=self.total_noise)
        if not 2.0**-60 <= self.clip_norm <= 2.0**60:  # vectors are float32: numbers below the clip must fit
            raise InvalidInput(
                f"clip_norm = {self.clip_norm:g}: must be within 2^-60..2^60; change the unit of the vectors"
            )
        if not 2.0**-60 <= self.total_noise <= 2.0**120:
            raise InvalidInput(f"total_noise = {self.total_noise:g}: must be within 2^-60..2^120")
        validation.whole(1, shares=self.shares)
        if not isinstance(self.rotate, bool):
            raise InvalidInput(f"rotate = {self.rotate!r}: must be True or False")
        self._check_subset()
        if not 2.0**-60 <= self.radius <= 2.0**30:
            raise InvalidInput(
                f"scale·clip_norm = {self.radius:g}: must be within 2^-60..2^30; change the scale"
            )
        if not isinstance(self.rotation_seed, bytes) or len(self.rotation_seed) != SEED_BYTES:
            raise InvalidInput(f"rotation_seed: must be {SEED_BYTES} bytes; it is public")

    def _check_subset(self) -> None:
        validation.non_negative(clip_slack=self.clip_slack)
        if self.keep is None:
            if self.clip_slack:
                raise InvalidInput(
                    f"clip_slack = {self.clip_slack!r}: it is for subsets; give keep too, or leave it at 0"
                )
            return
        if not self.sends_subsets:
            raise InvalidInput(
                f"keep = {self.keep!r}: the bound of {self.name} needs every coordinate; use smm or dgm with "
                "keep, or keep = None"
            )
        if not self.rotate:
            raise InvalidInput(
                f"keep = {self.keep!r}: coordinates are alike only after the rotation; use rotate = True"
            )
        validation.whole(1, self.padded_dimension, keep=self.keep)

    @property
    def radius(self) -> float:
        """The L2 norm on the integer grid to which the coordinates that are sent are clipped.

        γΔ, or √(keep/length)·γΔ·(1 + clip_slack/√keep) for a subset, as the accountant uses it.
        """
        whole = float(self.scale) * float(self.clip_norm)
        if self.keep is None:
            return whole
        share = math.sqrt(self.keep / self.padded_dimension)
        return share * whole * (1 + self.clip_slack / math.sqrt(self.keep))

    @property
    def padded_dimension(self) -> int:
        """Length of the rotated vector: the next available one, or the dimension itself without rotation."""
        return padded(self.dimension) if self.rotate else self.dimension

    @property
    def coordinates(self) -> int:
        """How many integers one participant sends: `keep`, or the whole rotated vector."""
        return self.padded_dimension if self.keep is None else self.keep

    # What is sent, and what comes of it

    @abstractmethod
    def encode(
        self, vectors: Any, *, round: int, shares: Shares = None, entropy: Entropy | None = None
    ) -> NDArray[Any]:
        """What each participant sends in this round."""

    @abstractmethod
    def encode_sum(
        self,
        vectors: Any,
        *,
        round: int,
        shares: Shares = None,
        participants: int | None = None,
        entropy: Entropy | None = None,
        stats: EncodeStats | None = None,
    ) -> NDArray[Any]:
        """The sum of what the participants send: the law of adding up `encode`, in constant memory."""

    def noisy_total(self, total: NDArray[np.float64], entropy: Entropy | None = None) -> NDArray[np.float64]:
        """A sum of clipped vectors plus noise, where a trusted aggregator adds both (not `distributed`)."""
        raise InvalidInput(f"{self.name}: each participant adds its own noise; use encode_sum")

    @abstractmethod
    def decode(self, total: Any, *, round: int) -> NDArray[Any]:
        """The estimate of the sum of the participants' (clipped) vectors, float64 (dimension,)."""

    # Records of a silo, in place of a participant's vector

    @property
    def sums_records(self) -> bool:
        """Whether a silo may add up its records and add noise to the sum once.

        The bound must hold for each record.
        """
        return any(bound in self.silo_bounds for bound in self.bounds)

    def silo_sum(self, *, round: int) -> SiloSum:
        """An empty exact sum of a silo's records for this round: add vectors to it, then `encode_silo`."""
        raise InvalidInput(
            f"{self.name}: this bound does not cover one record of a silo's sum; use smm or dgm with "
            "the bound tight, rdp, gdp or flat"
        )

    def encode_silo(
        self, silo: SiloSum, *, shares: Shares = None, entropy: Entropy | None = None
    ) -> NDArray[Any]:
        """A silo's message: its sum rounded, with one share of noise, modulo 2^bits.

        Each sum is encoded once. shares: how many silos' noise makes up `total_noise`.
        """
        raise InvalidInput(f"{self.name} does not sum records")

    def encode_silos(
        self,
        silos: Iterable[SiloSum],
        *,
        shares: Shares = None,
        participants: int | None = None,
        entropy: Entropy | None = None,
        stats: EncodeStats | None = None,
    ) -> NDArray[Any]:
        """The sum modulo 2^bits of what the silos would send, for simulation.

        It has the law of adding up `encode_silo`. participants: how many silos' noise is in it, at least as
        many as silos (the default). stats counts records.
        """
        raise InvalidInput(f"{self.name} does not sum records")

    # The noise

    @property
    @abstractmethod
    def noise(self) -> float:
        """The parameter of one participant's noise at `self.shares`."""

    @abstractmethod
    def noise_variance(self, participants: int, shares: Shares = None) -> float:
        """Variance of a coordinate of the noise in the sum of this many participants, on the integer grid."""

    @abstractmethod
    def noise_for_multiplier(self, multiplier: float) -> float:
        """Approximate `total_noise` that hides a vector as well as a Gaussian of this noise multiplier."""

    def starting_noise(self, multiplier: float) -> float:
        """`noise_for_multiplier`, accurate enough to start the search for the least noise."""
        return self.noise_for_multiplier(multiplier)

    def estimated_noise(self, multiplier: float) -> float:
        """`noise_for_multiplier` for comparing scales: cheap, and smooth in the scale."""
        return self.noise_for_multiplier(multiplier)

    def with_largest_linf(self, order: int | None) -> Self:
        """With the paper's clip: the largest L-infinity bound that its theorem allows at this order."""
        return self

    def proved_in_smaller_cohorts(self, bound: str) -> bool:
        """Whether this bound also holds when fewer participants than expected share the noise."""
        return True

    @abstractmethod
    def predicted_error(
        self, uploads: int, alignment: float, *, vectors: float | None = None, shares: Shares = None
    ) -> PredictedError:
        """The error of a sum of this many uploads, each vector as long as the clip allows.

        alignment: mean cosine between vectors. vectors: how many are in the sum, if not one per upload.
        shares: how many uploads' noise makes up `total_noise`.
        """

    # The bound: of one round, one participant's vector against the zero vector, with `shares` shares of noise

    @property
    @abstractmethod
    def bounds(self) -> tuple[str, ...]:
        """The names of the bounds that hold for these steps."""

    @property
    @abstractmethod
    def l1_sensitivity(self) -> float:
        """A bound on the L1 norm of the vector that the accountant sees, on the integer grid.

        A mixture's accountant sees the clipped vector, since rounding is part of the noise; the others' sees
        the rounded vector.
        """

    @property
    @abstractmethod
    def l2_sensitivity(self) -> float:
        """A bound on the L2 norm of the same vector."""

    @property
    @abstractmethod
    def linf_sensitivity(self) -> float:
        """A bound on the coordinates of the same vector."""

    def rdp(self, orders: Sequence[int]) -> RdpCurve:
        """The Rényi divergences at the orders at which the bound holds."""
        raise InvalidInput(f"{self.name} has no Rényi bound; it has {', '.join(self.bounds)}")

    def certificate(self, bound: str, slack: float) -> GaussianCertificate:
        """The Gaussian that one round is no worse than, up to total variation `slack`."""
        raise InvalidInput(f"bound = {bound!r}: {self.name} has {', '.join(self.bounds)}")

    def approximate_dp(self, delta: float) -> float:
        """ε of one round at δ, where there is no Rényi bound."""
        raise InvalidInput(f"{self.name} is accounted for by {', '.join(self.bounds)}")

    def _noisy(self) -> None:
        if self.total_noise == 0:
            raise InvalidInput("this mechanism adds no noise: it has no privacy bound")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `mechanism_from_dict`."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"name": self.name, **data, "rotation_seed": self.rotation_seed.hex()}
