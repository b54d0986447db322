"""The planner's answers as plain data for the page, worked out in a process of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from skelmix.display.json_text import plain_data
from skelmix.errors import SkelmixError

if TYPE_CHECKING:
    from skelmix.explore.settings import Settings

#: rates of the chart, bits per weight
RATES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def answer(settings: Settings) -> dict[str, Any]:
    """What the page shows of one plan: {"plan": …}, or {"refused": message}; and the planner's seconds."""
    start = time.perf_counter()
    try:
        plan = settings.plan()
    except SkelmixError as error:
        return {"refused": " ".join(str(error).split()), "seconds": time.perf_counter() - start}
    seconds = time.perf_counter() - start
    from skelmix.planning.card import relative_error
    from skelmix.wording import figure, up

    observers, aggregator, *_ = plan.report.guarantee
    ratio = relative_error(plan)
    shown = {
        "verdict": plan.report.verdict,
        "modelled": bool(plan.report.modelled),
        "summary": plain_data(plan.summary()),
        "sections": [
            {"title": section.title, "facts": [vars(fact) for fact in section.facts]}
            for section in plan.sections
        ],
        "tiles": [
            {"name": "squared error", "value": f"{figure(ratio)} ×", "note": "the central Gaussian's"},
            {"name": observers.name, "value": observers.value, "note": f"at δ = {up(plan.report.delta)}"},
            {"name": aggregator.name, "value": aggregator.value, "note": aggregator.note},
            {
                "name": "upload",
                "value": f"{plan.round_bytes:,}",
                "note": f"bytes per {'silo' if settings.who == 'silos' else 'participant'} and round, "
                f"{plan.upload_bytes:,} of them for the vector",
            },
        ],
        "relative_error": plain_data(ratio),
        "plan_json": plan.to_json(),
    }
    return {"plan": shown, "seconds": seconds}
