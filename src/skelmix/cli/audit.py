"""`skelmix audit`: attack a mechanism, and compare what the attack proves with what is claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from click.core import ParameterSource

from skelmix.cli import options as opt
from skelmix.cli.console import emit, err, progress

if TYPE_CHECKING:
    from skelmix.planning import Plan

Panel = "Attack"

#: what a plan in a file already says
_PLANNED = {
    "epsilon", "delta", "rounds", "dimension", "clip_norm", "bits", "mechanism", "bound", "scale", "cohort",
    "population",
}  # fmt: skip


PlanFile = Annotated[
    Path | None,
    typer.Option(help="Attack this plan (JSON from `skelmix plan --output`).", rich_help_panel=Panel),
]
Trials = Annotated[int, typer.Option(help="Games for each pair of worlds.", rich_help_panel=Panel)]
Confidence = Annotated[
    float | None,
    typer.Option(
        help="Confidence of the lower bound; default: 0.999999 for one release, 0.999 with canaries.",
        rich_help_panel=Panel,
    ),
]
Canaries = Annotated[
    int,
    typer.Option(
        help="Attack all rounds of one run with this many canaries, instead of one release.",
        rich_help_panel=Panel,
    ),
]
Everything = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Every mechanism over bits, ε and dimensions; games in the --output table are not played again.",
        rich_help_panel=Panel,
    ),
]
Output = Annotated[Path, typer.Option(help="Where --all writes its table.", rich_help_panel=Panel)]
Plot = Annotated[
    Path | None,
    typer.Option(help="Write the ROC curve with the claimed region (one release).", rich_help_panel=Panel),
]
Delta = Annotated[
    float | None,
    typer.Option(
        help="Privacy target δ; default: 0.01 for one release, 1e-6 with canaries.",
        rich_help_panel="Privacy",
    ),
]
Bound = Annotated[
    str | None, typer.Option(help=f"{opt.BOUNDS}; default: gdp for smm and dgm, otherwise tight.")
]


def register(app: typer.Typer) -> None:
    app.command("audit")(audit_command)


def audit_command(
    context: typer.Context,
    plan: PlanFile = None,
    trials: Trials = 1_000_000,
    confidence: Confidence = None,
    canaries: Canaries = 0,
    everything: Everything = False,
    output: Output = Path("results/audit.csv"),
    plot: Plot = None,
    epsilon: opt.Epsilon = 1.0,
    delta: Delta = None,
    dimension: opt.Dimension = 16,
    clip_norm: opt.ClipNorm = 1.0,
    bits: opt.Bits = 8,
    mechanism: opt.MechanismName = "smm",
    bound: Bound = None,
    scale: opt.Scale = None,
    cohort: opt.CohortSize = 1,
    population: opt.Population = None,
    rounds: opt.Rounds = 1,
    as_json: opt.Json = False,
) -> None:
    """Attack a mechanism: the attack proves a lower bound on ε; exit code 1 if it exceeds the claim.

    One release is attacked at a large δ, which trials can resolve; the claim is made at the same δ. Under a
    plan for silos the attack is on one record, through the silos' exact sums.
    Example: skelmix audit --epsilon 1 --bits 8 --trials 1000000 --plot roc.png
    """
    from skelmix.mechanisms.bounds import BOUNDS
    from skelmix.mechanisms.registry import MECHANISMS
    from skelmix.validation import probability

    _refuse_unused(context, everything=everything, plan=plan is not None, canaries=canaries != 0)
    if everything:
        _study(output, as_json)
        return
    if confidence is None:
        confidence = 0.999 if canaries else 0.999999
    if delta is None:
        delta = 1e-6 if canaries else 1e-2
    if bound is None:
        known = MECHANISMS[mechanism].known_bounds
        bound = next((name for name in known if BOUNDS[name].quick_certificate), "tight")
    probability(confidence=confidence)  # before anything is planned or played
    if plan is not None:
        attacked = _read(plan)
    else:
        attacked = opt.build_plan(
            epsilon=epsilon, delta=delta, dimension=dimension, clip_norm=clip_norm, bits=bits,
            cohort=cohort, population=population, rounds=rounds, mechanism=mechanism, bound=bound,
            scale=scale, dropout_tolerance=0.0, colluding=0, alignment=1.0,
            sampling="none" if population in (None, cohort) else "poisson",
        )  # fmt: skip
    if canaries:
        result = _training(attacked, canaries, confidence)
    else:
        result = _release(attacked, trials, confidence, plot)
    emit(result, _readable(result), as_json=as_json)
    if not result["holds"]:
        raise typer.Exit(1)


def _refuse_unused(context: typer.Context, *, everything: bool, plan: bool, canaries: bool) -> None:
    """Refuse an option that would have no effect: the user expects it to have one."""
    from skelmix.errors import InvalidInput

    given = {
        str(option.name): option.opts[0]
        for option in context.command.params
        if context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    }
    if everything:
        unused, why = given.keys() - {"everything", "output", "as_json"}, "the settings of --all are fixed"
    elif plan and (unused := given.keys() & _PLANNED):
        why = "the plan in the file says it"
    elif canaries and (unused := given.keys() & {"trials", "plot"}):
        why = "with --canaries there is one run, and no single release"
    else:
        unused, why = given.keys() & {"output"}, "only --all writes a table"
    if unused:
        names = ", ".join(sorted(given[name] for name in unused))
        raise InvalidInput(f"{names} would be ignored: {why}; leave it out")


def _read(path: Path) -> Plan:
    from skelmix.planning import Plan

    return Plan.from_json(path.read_bytes())


def _release(plan: Plan, trials: int, confidence: float, picture: Path | None) -> dict[str, Any]:
    from skelmix.audit import audit_record, audit_release, roc_curve
    from skelmix.planning import Silos

    games: dict[str, Any] = {
        "delta": plan.target.delta, "bound": plan.report.bound, "trials": trials, "confidence": confidence,
    }  # fmt: skip
    with err.status("attacking one release"):
        if isinstance(plan.cohort, Silos):  # every record is drawn: one release, without sampling
            silos = replace(plan.cohort, batch=plan.cohort.records)
            audited = audit_record(plan.mechanism, silos, **games)
        else:
            audited = audit_release(plan.mechanism, **games)
    if picture is not None:
        roc_curve.plot(audited, picture)
        err.print(f"wrote {picture}")
    return audited.to_dict()


def _training(plan: Plan, canaries: int, confidence: float) -> dict[str, Any]:
    from skelmix.audit.canaries import audit_training

    with err.status(f"running {plan.rounds} rounds with {canaries} canaries"):
        return audit_training(plan, canaries, confidence=confidence).to_dict()


def _study(output: Path, as_json: bool) -> None:
    """Play the games that the table lacks, and judge all of them against today's claims."""
    from dataclasses import asdict, fields

    from skelmix.audit import study
    from skelmix.studies.rows import ResultFile, key

    names = [field.name for field in fields(study.Setting)]
    measures = ["claimed", "lower_bound", "gap", "holds", "delta", "confidence", "trials", "pair"]
    with ResultFile(output, names, measures) as file, progress() as bar:
        grid = [(key(asdict(setting), names), study.game(setting)) for setting in study.settings()]
        task = bar.add_task("configurations", total=len(grid), note="")
        missing = [(place, game) for place, game in grid if not game.was_played(file.rows.get(place))]
        bar.advance(task, len(grid) - len(missing))
        if missing:
            file.announce("skelmix audit --all")
        for _, game in missing:
            file.append(game.play())
            bar.advance(task)
        refuted = [(game, file.rows[place]) for place, game in grid if not game.holds(file.rows[place])]
    result = {
        "configurations": len(grid),
        "read": len(grid) - len(missing),
        "played": len(missing),
        "refuted": len(refuted),
        "holds": not refuted,
        "confidence": 1 - study.ERROR,
        "output": str(output),
    }
    lines = [
        f"{len(grid)} configurations ({result['read']} read, {result['played']} played), "
        f"{len(refuted)} claims refuted; {output}"
    ]
    for game, row in refuted:
        settings = ", ".join(f"{name} {value}" for name, value in asdict(game.setting).items())
        lines.append(f"REFUTED: {settings}: claimed {game.claimed:.4f}, attacked {row['lower_bound']:.4f}")
    emit(result, "\n".join(lines), as_json=as_json)
    if refuted:
        raise typer.Exit(1)


def _readable(result: dict[str, Any]) -> str:
    verdict = "the claim is not refuted" if result["holds"] else "THE CLAIM IS REFUTED"
    return "\n".join(
        [
            f"claimed     ε = {result['claimed']:.4f} at δ = {result['delta']:g}",
            f"attacked    ε >= {result['lower_bound']:.4f}, {result['gap']:.1%} below the claim",
            f"confidence  {result['confidence']:.10g} from {result['trials']:,} "
            + ("canaries" if "guesses" in result else "games"),
            f"verdict     {verdict}",
        ]
    )
