"""Recipes: options of a training run that go well together on a data set, chosen for a privacy budget.

`paper` is the job of Bao et al. 2022 (Section 6.2). `best` trains small models that learn much before the
noise hides it: softmax regression on scattering features of images (Tramèr and Boneh 2021), and a
next-character model of text with local steps. Large cohorts and momentum do the rest, and a small public
subset of the rotated coordinates is as good as all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from skelmix.encoding.indicator import AdaptiveClip
from skelmix.errors import InvalidInput
from skelmix.validation import one_of


@dataclass(frozen=True)
class Recipe:
    """Options of `skelmix train`.

    batch: participants, or records in silos, expected in a round. rate: bits per weight; None: 8 bits per
    coordinate. bits, silo_bits: bits per coordinate that a participant, or a silo, sends; None: the planner
    chooses. alignment: mean cosine between vectors, for which the integers are sized; None: the usual one.
    clip_quantile: an adaptive clip that begins at clip_norm and keeps this fraction of the vectors within;
    None: a fixed one. lr_decay: the learning rate falls to zero over the rounds.
    """

    model: str
    optimizer: str
    lr: float
    batch: int
    rounds: int
    clip_norm: float
    rate: float | None = None
    bits: int | None = None
    silo_bits: int | None = None
    alignment: float | None = None
    clip_quantile: float | None = None
    local_steps: int = 1
    local_lr: float = 0.1
    lr_decay: bool = False

    @property
    def clip(self) -> AdaptiveClip | str:
        """How vectors are clipped, as a plan takes it."""
        if self.clip_quantile is None:
            return "fixed"
        return AdaptiveClip(start=self.clip_norm, quantile=self.clip_quantile)

    def with_changes(self, **options: Any) -> Recipe:
        """The recipe with these options, but for those that are None."""
        return replace(self, **{name: value for name, value in options.items() if value is not None})


PAPER = Recipe("mlp", "adam", 0.005, batch=240, rounds=1_000, clip_norm=1.0)

#: Found at ε = 3 and δ = 1e-5 with Gaussian noise. A linear model's clip is fixed: it fits most records, so
#: their gradients vanish, and a clip at their median with them; one at a high quantile, good for MNIST, grows
#: to the norms of records that are never fitted where there are more of these (Fashion-MNIST).
#: Gradients point the same way in the first five rounds (alignment 0.015), so that sums must not wrap there,
#: and hardly at all later, when the rounding of thousands of participants must stay small beside the noise:
#: thirteen bits per coordinate do both. Ten silos round ten times only, and need ten bits.
#: What is not sent in one round is sent in another: over many rounds with a falling learning rate little of
#: that noise is left in the last weights (Fashion-MNIST).
_LINEAR = Recipe(
    "linear", "momentum", 8.0, 4_096, 300, clip_norm=0.1, rate=0.25, bits=13, silo_bits=10, alignment=0.015
)  # fmt: skip
BEST = {
    "mnist": _LINEAR,
    "fashion-mnist": replace(_LINEAR, rounds=1_000, lr_decay=True),
    "cifar-10": replace(_LINEAR, lr=4.0, batch=8_192),
    "shakespeare": Recipe(
        "characters",
        "momentum",
        0.25,
        300,
        60,
        clip_norm=1.0,
        rate=8.0,
        alignment=0.5,
        clip_quantile=0.5,
        local_steps=4,
        local_lr=0.5,
    ),
}


def recipe_for(name: str | None, dataset: str, epsilon: float) -> Recipe:
    """The recipe of this name (`paper` or `best`) for a data set and a budget.

    name=None: the paper's, or for text the only one there is. `InvalidInput` where there is none.
    """
    name = ("best" if dataset == "shakespeare" else "paper") if name is None else name
    one_of(("paper", "best"), recipe=name)
    if name == "paper":
        if dataset == "shakespeare":
            raise InvalidInput("recipe = 'paper': it classifies images; take best for shakespeare")
        return PAPER
    if dataset not in BEST:
        raise InvalidInput(
            f"dataset = {dataset!r}: the recipe best is known for {', '.join(BEST)}; for others give --model "
            "linear with --cohort, --rounds, --lr and --clip-norm of your own"
        )
    recipe = BEST[dataset]
    return replace(recipe, lr=recipe.lr / 2) if epsilon < 2 and recipe.model == "linear" else recipe
