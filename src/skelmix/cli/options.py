"""The options that plan, account, sum and train share, and the plan they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from skelmix.planning import Cohort, Plan, Silos

MECHANISMS = "smm|dgm|skellam|ddg|cpsgd|gaussian"
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
        help="Probability with which a participant of a round sends its vector, by a secret coin of its own.",
        rich_help_panel="Participants",
    ),
]
MaxParticipations = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto",
        help="Rounds that a participant contributes to at most; auto: the smallest cap that one in a million "
        "would exceed.",
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
MechanismName = Annotated[str, typer.Option("--mechanism", help=MECHANISMS, rich_help_panel="Mechanism")]
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
Colluding = Annotated[
    int,
    typer.Option(
        help="Participants whose noise may be known to the adversary.", rich_help_panel="Participants"
    ),
]
SiloCount = Annotated[
    int | None,
    typer.Option(
        "--silos", help="Silos that hold many records each: protect records.", rich_help_panel="Silos"
    ),
]
Records = Annotated[
    int | None,
    typer.Option(help="Records in all silos together: public, may be rough.", rich_help_panel="Silos"),
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
        "gradients of single records have 0.02 and less.",
        rich_help_panel="Vector",
    ),
]


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
        return Silos(silos, records, batch, dropout_tolerance, colluding, unit)
    cohort = Cohort(
        expected=expected,
        population=expected if population is None else population,
        dropout_tolerance=dropout_tolerance,
        colluding=colluding,
        sampling=sampling,
        contribute=contribute,
        max_participations=_cap(max_participations),
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
    for name in ("cohort", "population", "sampling"):
        if context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InvalidInput(
                f"--{name}: all silos are in every round, and each draws its records; leave it out, and give "
                "--records and --batch"
            )


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
    bits: int | None = None,
    rate: float | None = None,
    keep: float | None = None,
    silos: int | None = None,
    records: int | None = None,
    batch: int | None = None,
    unit: str = "record",
) -> Plan:
    """The plan that the shared options describe."""
    from skelmix.planning import PrivacyTarget, plan

    return plan(
        PrivacyTarget(epsilon, delta, epsilon_aggregator),
        dimension=dimension,
        clip_norm=clip_norm,
        rate=rate,
        bits=bits,
        keep=keep,
        rounds=rounds,
        cohort=build_cohort(
            cohort,
            population,
            dropout_tolerance,
            colluding,
            sampling,
            contribute,
            max_participations,
            rounds,
            silos=silos,
            records=records,
            batch=batch,
            unit=unit,
        ),
        mechanism=mechanism,
        scale=scale,
        bound=bound,
        alignment=alignment,
    )
