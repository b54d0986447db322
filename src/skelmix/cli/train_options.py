"""The options of `skelmix train` that no other command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_RUN = "Training"
_ALIGNMENT = (
    "Mean cosine between participants' vectors, 0..1: how long their sum may get. Default for gradients of "
    "single records: 0.02, above what the first rounds have, or with --rate or --keep 0.005, about the mean "
    "of a run; else 1, the safe choice. Too low a value shows as wrapped coordinates."
)
_RECIPE = (
    "paper: its network, 240 participants, 1,000 rounds. best: the highest accuracy for the budget; a linear "
    "model on fixed features of images, 4,096 or more participants, 0.25 bits per weight. Other options "
    "overrule it. Default: paper, or best for shakespeare."
)
_MODEL = (
    "mlp (the paper's), cnn, linear (on fixed features), characters (of text), or package.module:factory, a "
    "function without arguments. Default: the recipe's."
)


def _option(help: str, *names: str, panel: str = _RUN) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


Dataset = Annotated[str, _option("mnist, fashion-mnist, cifar-10, shakespeare, or a directory of idx files.")]
Recipe = Annotated[str | None, _option(_RECIPE)]
Model = Annotated[str | None, _option(_MODEL)]
Optimizer = Annotated[str | None, _option("adam, adamw, sgd or momentum. Default: the recipe's.")]
Lr = Annotated[float | None, _option("Learning rate. Default: the recipe's.")]
ClipNorm = Annotated[
    float | None,
    _option("L2 norm that vectors are clipped to. Default: the recipe's.", panel="Vector"),
]
Clip = Annotated[
    str | None,
    _option("fixed or adaptive (it finds a quantile of the norms). Default: the recipe's.", panel="Vector"),
]
Cohort = Annotated[
    int | None,
    _option("Participants expected in a round. Default: the recipe's.", panel="Participants"),
]
Rounds = Annotated[int | None, _option("Rounds of training. Default: the recipe's.", panel="Participants")]
Alignment = Annotated[float | None, _option(_ALIGNMENT, panel="Vector")]
RecordsPerParticipant = Annotated[int, _option("Records that each participant holds.")]
Silos = Annotated[
    int | None, _option("Divide the records among this many silos, and protect records.", panel="Silos")
]
Records = Annotated[
    int | None,
    _option(
        "Records (owners) in all silos together: public, may be rough. Default: those of the data "
        "set, whose number is then public.",
        panel="Silos",
    ),
]
Owners = Annotated[
    Path | None,
    _option(
        "File giving the owner of each training record (.npy, or text with one owner per line): "
        "protect owners.",
        panel="Silos",
    ),
]
Skew = Annotated[float | None, _option("Dirichlet concentration of a label skew.")]
Ids = Annotated[
    Path | None, _option("File giving the owner of each training record: .npy, or one id per line.")
]
LocalSteps = Annotated[
    int | None, _option("Gradient steps per participant and round. Default: the recipe's.")
]
LocalLr = Annotated[float | None, _option("Learning rate of those steps. Default: the recipe's.")]
LrDecay = Annotated[
    bool | None,
    _option("Let the learning rate fall to zero, by the same step after every round. Default: the recipe's."),
]
Secure = Annotated[str, _option("simulated (modular sum), protocol (secure aggregation) or none (gaussian).")]
EvaluateEvery = Annotated[int, _option("Rounds between evaluations.")]
CheckpointEvery = Annotated[int, _option("Rounds between checkpoints.")]
Seeds = Annotated[str, _option("Comma-separated; repeatable runs, NOT PRIVATE.", "--seeds", "--seed")]
Baseline = Annotated[
    str,
    _option("Also train DPSGD for comparison: dpsgd (same accounting), dpsgd-pld or dpsgd-rdp."),
]
Directory = Annotated[Path | None, _option("Run directory; default runs/<time>.")]
Resume = Annotated[Path | None, _option("Continue the run in this directory, with the settings it has.")]
Diagnostics = Annotated[
    bool,
    _option("Keep cohort sizes, norms and clipped fractions too: NOT PRIVATE, no noise protects them."),
]
Tensorboard = Annotated[bool, _option("Write TensorBoard logs too, when installed.")]
