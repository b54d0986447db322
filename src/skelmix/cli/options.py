"""The options that plan, account, sum and train share, and the plan they describe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from skelmix.cli.console import say_when_compiling
from skelmix.mechanisms.names import EVERY

if TYPE_CHECKING:
    from skelmix.encoding.indicator import AdaptiveClip
    from skelmix.planning import Cohort, Plan, Silos

BOUNDS = "tight|rdp|gdp|flat|paper"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout; logs go to stderr.")]
Epsilon = Annotated[float, typer.Option(help="Privacy target ε.", rich_help_panel="Privacy")]
EpsilonAggregator = Annotated[
    float | None,
    typer.Option(
        help="Second target: ε against the aggregator, who sees who takes part.", rich_help_panel="Privacy"
    ),
]
Contribute = Annotated[
    float,
    typer.Option(
        help="Probability that a participant of a round sends its vector rather than zero, by its own secret "
        "coin.",
        rich_help_panel="Participants",
    ),
]
MaxParticipations = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto",
        help="The most rounds that one participant contributes to; auto: the smallest cap that one in a "
        "million would exceed.",
        rich_help_panel="Participants",
    ),
]
Delta = Annotated[
    float, typer.Option(help="Privacy target δ, well below 1/population.", rich_help_panel="Privacy")
]
Dimension = Annotated[int, typer.Option(help="Length of a participant's vector.", rich_help_panel="Vector")]
ClipNorm = Annotated[
    float, typer.Option(help="L2 norm that vectors are clipped to.", rich_help_panel="Vector")
]
Clip = Annotated[
    str,
    typer.Option(
        help="fixed: --clip-norm in every round; adaptive: the clip norm follows a quantile of the vectors' "
        "norms, for 0.125 % more noise.",
        rich_help_panel="Vector",
    ),
]
ClipQuantile = Annotated[
    float | None,
    typer.Option(
        help="Adaptive: the fraction of vectors that should be within the clip norm; default: 0.8.",
        rich_help_panel="Vector",
    ),
]
ClipRate = Annotated[
    float | None,
    typer.Option(
        help="Adaptive: how fast the clip norm moves once it has found the quantile, by e^rate per round at "
        "most; default: 0.2.",
        rich_help_panel="Vector",
    ),
]
ClipStart = Annotated[
    float | None,
    typer.Option(
        help="Adaptive: the first round's clip norm; default: --clip-norm.", rich_help_panel="Vector"
    ),
]
Bits = Annotated[
    int | None,
    typer.Option(help="Bits per coordinate on the wire, 1..32; default: 8.", rich_help_panel="Vector"),
]
Rate = Annotated[
    float | None,
    typer.Option(
        help="Bits per weight that an upload may have, 0.01..32: the planner divides them into coordinates "
        "sent and bits for each. In place of --bits and --keep, or with one of them.",
        rich_help_panel="Vector",
    ),
]
Keep = Annotated[
    float | None,
    typer.Option(
        help="Fraction of the rotated coordinates that is sent, a public random subset per round; "
        "default: all, or what --rate gives.",
        rich_help_panel="Vector",
    ),
]
CohortSize = Annotated[
    int, typer.Option("--cohort", help="Participants expected in a round.", rich_help_panel="Participants")
]
Population = Annotated[
    int | None,
    typer.Option(
        help="Participants in all; default: the cohort, everyone in every round.",
        rich_help_panel="Participants",
    ),
]
Rounds = Annotated[int, typer.Option(help="Rounds that the budget pays for.", rich_help_panel="Privacy")]
MechanismName = Annotated[
    str,
    typer.Option(
        "--mechanism",
        help=f"{'|'.join(EVERY)}: smm and dgm round randomly and add integer noise; gaussian needs a trusted "
        "aggregator; the others are baselines.",
        rich_help_panel="Mechanism",
    ),
]
Bound = Annotated[
    str,
    typer.Option(
        help=f"{BOUNDS}: how privacy is proved; tight takes the best certified one.",
        rich_help_panel="Mechanism",
    ),
]
Scale = Annotated[
    float | None, typer.Option(help="Scale γ; default: the best for the bits.", rich_help_panel="Mechanism")
]
DropoutTolerance = Annotated[
    float, typer.Option(help="Fraction of a cohort that may drop out.", rich_help_panel="Participants")
]
DropoutRate = Annotated[
    float | None,
    typer.Option(
        help="Probability that a participant or silo drops out of a round, independently of others. The ε "
        "of sampled cohorts is proved for this rate (default: the tolerance), and failing rounds are "
        "predicted from it.",
        rich_help_panel="Participants",
    ),
]
AllowFailingRounds = Annotated[
    bool,
    typer.Option(
        "--allow-failing-rounds",
        help="Go on even if most rounds would fail at the dropout rate.",
        rich_help_panel="Participants",
    ),
]
Colluding = Annotated[
    int,
    typer.Option(
        help="Participants whose noise may be known to the adversary.", rich_help_panel="Participants"
    ),
]
SiloCount = Annotated[
    int | None,
    typer.Option(
        "--silos", help="Number of silos with many records each: protects records.", rich_help_panel="Silos"
    ),
]
Records = Annotated[
    int | None,
    typer.Option(
        help="Number of records in all silos together: public, may be rough.", rich_help_panel="Silos"
    ),
]
Batch = Annotated[
    int | None, typer.Option(help="Records expected in a round, over all silos.", rich_help_panel="Silos")
]
Sampling = Annotated[
    str, typer.Option(help="poisson|fixed|none: how a cohort is drawn.", rich_help_panel="Participants")
]
Alignment = Annotated[
    float,
    typer.Option(
        help="Mean cosine between participants' vectors, 0..1: how long their sum may get. A long sum wraps "
        "sooner and suffers more from coordinates that are not sent. 1, all alike, is the safe choice; "
        "gradients of single records have 0.02 or less.",
        rich_help_panel="Vector",
    ),
]


def given(context: typer.Context) -> set[str]:
    """The names of the options that the user gave on the command line."""
    from click.core import ParameterSource

    return {
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def spelled(names: Iterable[str]) -> str:
    """Names of parameters as a user writes the options."""
    return ", ".join("--" + name.replace("_", "-") for name in sorted(names))


def build_cohort(
    expected: int,
    population: int | None,
    dropout_tolerance: float,
    colluding: int,
    sampling: str,
    contribute: float = 1.0,
    max_participations: str | None = None,
    rounds: int = 1,
    *,
    dropout_rate: float | None = None,
    silos: int | None = None,
    records: int | None = None,
    batch: int | None = None,
    unit: str = "record",
) -> Cohort | Silos:
    """Who contributes: silos if their number is given, else a cohort.

    Without a population everyone is in every round.
    """
    from skelmix.planning import Cohort, Silos

    _not_mixed(silos, records, batch)
    if silos is not None and records is not None and batch is not None:
        return Silos(silos, records, batch, dropout_tolerance, colluding, unit, dropout_rate)
    cohort = Cohort(
        expected=expected,
        population=expected if population is None else population,
        dropout_tolerance=dropout_tolerance,
        colluding=colluding,
        sampling=sampling,
        contribute=contribute,
        max_participations=_cap(max_participations),
        dropout_rate=dropout_rate,
    )
    return cohort.with_smallest_cap(rounds) if max_participations == "auto" else cohort


def _cap(text: str | None) -> int | None:
    from skelmix.errors import InvalidInput

    if text is None or text == "auto":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise InvalidInput(
            f"max_participations = {text!r}: give a number of rounds, or auto for the smallest cap that one "
            "in a million would exceed"
        ) from error


def _not_mixed(silos: int | None, records: int | None, batch: int | None) -> None:
    """Refuse options of cohorts together with those of silos."""
    import click
    from click.core import ParameterSource

    from skelmix.errors import InvalidInput

    if silos is None:
        if records is not None or batch is not None:
            raise InvalidInput("--records and --batch describe silos: give --silos too, or leave them out")
        return
    if records is None or batch is None:
        raise InvalidInput(f"--silos {silos}: give --records (in all silos) and --batch (per round) too")
    context = click.get_current_context(silent=True)
    for name in ("cohort", "population", "sampling", "contribute", "max_participations"):
        if context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InvalidInput(
                f"{spelled({name})}: all silos are in every round, and each draws its records; leave it out, "
                "and give --records and --batch"
            )


def build_clip(
    clip: str, clip_norm: float, quantile: float | None, rate: float | None, start: float | None
) -> str | AdaptiveClip:
    """The clip that the shared options describe."""
    from skelmix.encoding.indicator import AdaptiveClip
    from skelmix.errors import InvalidInput

    options = {"quantile": quantile, "rate": rate, "start": start}
    given = {name: value for name, value in options.items() if value is not None}
    if clip != "adaptive":
        if given:
            words = ", ".join(f"--clip-{name}" for name in given)
            raise InvalidInput(f"{words}: only an adaptive clip uses this; give --clip adaptive too")
        return clip
    return AdaptiveClip(**({"start": clip_norm} | given))


def build_plan(
    *,
    epsilon: float,
    delta: float,
    dimension: int,
    clip_norm: float,
    cohort: int,
    population: int | None,
    rounds: int,
    mechanism: str,
    bound: str,
    scale: float | None,
    dropout_tolerance: float,
    colluding: int,
    sampling: str,
    alignment: float,
    epsilon_aggregator: float | None = None,
    contribute: float = 1.0,
    max_participations: str | None = None,
    bits: int | Literal["auto"] | None = None,
    rate: float | None = None,
    keep: float | None = None,
    silos: int | None = None,
    records: int | None = None,
    batch: int | None = None,
    unit: str = "record",
    clip: str = "fixed",
    clip_quantile: float | None = None,
    clip_rate: float | None = None,
    clip_start: float | None = None,
    dropout_rate: float | None = None,
    allow_failing_rounds: bool = False,
) -> Plan:
    """The plan that the shared options describe."""
    from skelmix.planning import AdaptiveClip, PrivacyTarget, plan

    say_when_compiling()
    clipping = build_clip(clip, clip_norm, clip_quantile, clip_rate, clip_start)
    group = build_cohort(
        cohort, population, dropout_tolerance, colluding, sampling, contribute, max_participations, rounds,
        dropout_rate=dropout_rate, silos=silos, records=records, batch=batch, unit=unit,
    )  # fmt: skip
    return plan(
        PrivacyTarget(epsilon, delta, epsilon_aggregator),
        dimension=dimension,
        clip_norm=clipping.start if isinstance(clipping, AdaptiveClip) else clip_norm,
        clip=clipping,
        rate=rate,
        bits=bits,
        keep=keep,
        rounds=rounds,
        cohort=group,
        mechanism=mechanism,
        scale=scale,
        bound=bound,
        alignment=alignment,
        allow_failing_rounds=allow_failing_rounds,
    )
