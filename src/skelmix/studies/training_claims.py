"""What the paper says about training (Section 6.2), and what skelmix adds, judged on one data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skelmix.studies.rows import Row
from skelmix.studies.training_rows import EPSILONS, GIVEN_SCALES, SCALES, Accuracies, Mean, claim_of_cases
from skelmix.studies.verdicts import Claim, judged

MEANINGFUL = 50.0  # percent; the paper does not say which accuracy it calls meaningful

#: as the paper says: points that SMM gains over DDG and Skellam at 2^8, ε = 3; the same at |B| = 960; its
#: gap to DPSGD at 2^10
STATED = {"mnist": (6.0, 30.0, 0.5), "fashion-mnist": (10.0, 20.0, 1.0)}

Case = tuple[str, float, bool]


def paper_claims(rows: Sequence[Row], dataset: str) -> list[Claim]:
    known = Accuracies(rows, dataset)
    gain, gain_960, gap_ten = STATED[dataset]
    few = [
        (f"{line}, ε = {e:g}", mean.value, (mean.value > MEANINGFUL) == (line == "smm-paper"))
        for line in ("smm-paper", "skellam", "ddg", "cpsgd")
        for e in EPSILONS
        if (mean := known.at(line, 6, 16.0, e)) is not None
    ]
    byte = [
        (f"over {rival}, ε = {e:g}", gap, gap > 0)
        for rival in ("skellam", "ddg")
        for e in EPSILONS
        if (gap := known.gap(("smm-paper", 8, 64.0, e), (rival, 8, 64.0, e))) is not None
    ]
    source = "Section 6.2"
    return [
        judged("At m = 2^6 only SMM is meaningful (above 50 %), at every ε", source, few, "accuracy"),
        judged("At m = 2^8, γ = 64, SMM is above DDG and Skellam at every ε", source, byte, "points"),
        _gain(known, f"... by around {gain:g} points at ε = 3 (half to double)", 240, gain),
        _near_dpsgd(known, "At ε = 1, m = 2^8, SMM is within 10 points of DPSGD", 1.0, -100.0, 10.0),
        _near_dpsgd(known, "At ε = 3, m = 2^8, SMM is around 3 points below DPSGD (1.5 to 5)", 3.0, 1.5, 5.0),
        _low_at_one(known),
        _gain(known, f"At |B| = 960 SMM gains around {gain_960:g} points (half to double)", 960, gain_960),
        _up_and_down(known),
        _ten_bits(known, gap_ten),
        judged("cpSGD stays below 20 % under all settings", source, _cpsgd(known), "accuracy"),
    ]


def _gain(known: Accuracies, text: str, batch: int, stated: float) -> Claim:
    gaps = [
        (f"over {rival}", known.gap(("smm-paper", 8, 64.0, 3.0, batch), (rival, 8, 64.0, 3.0, batch)))
        for rival in ("skellam", "ddg")
    ]
    return claim_of_cases(
        text, "Section 6.2", [(case, gap, _within(gap, stated / 2, stated * 2)) for case, gap in gaps]
    )


def _within(gap: float | None, least: float, most: float) -> bool:
    return gap is not None and least <= gap <= most


def _value(mean: Mean | None) -> float | None:
    return None if mean is None else mean.value


def _near_dpsgd(known: Accuracies, text: str, epsilon: float, least: float, most: float) -> Claim:
    gap = known.gap(("gaussian-rdp", 8, 64.0, epsilon), ("smm-paper", 8, 64.0, epsilon))
    return claim_of_cases(text, "Section 6.2", [("points below", gap, _within(gap, least, most))])


def _low_at_one(known: Accuracies) -> Claim:
    means = [(line, known.at(line, 8, 64.0, 1.0)) for line in ("skellam", "ddg")]
    return claim_of_cases(
        "At ε = 1, m = 2^8, DDG and Skellam are very low (below 50 %)",
        "Section 6.2",
        [(line, _value(mean), mean is not None and mean.value < MEANINGFUL) for line, mean in means],
    )


def _up_and_down(known: Accuracies) -> Claim:
    means = [(scale, known.at("smm-paper", 8, scale, 3.0)) for scale in (8.0, 16.0, 32.0, 64.0, 128.0, 256.0)]
    values = [mean.value for _, mean in means if mean is not None]
    peak = values.index(max(values)) if values else 0
    rises_then_falls = len(values) == 6 and 0 < peak < 5
    return claim_of_cases(
        "At m = 2^8 SMM's accuracy first rises with γ from 8 to 256, then falls",
        "Section 6.2",
        [(f"γ = {scale:g}", _value(mean), rises_then_falls) for scale, mean in means],
    )


def _ten_bits(known: Accuracies, stated: float) -> Claim:
    gaps = [
        (f"DPSGD over {line}, ε = {e:g}", gap, most)
        for line, most in (("smm-paper", 2 * stated), ("skellam", stated), ("ddg", stated))
        for e in EPSILONS[1:]
        if (gap := known.gap(("gaussian-rdp", 10, 256.0, e), (line, 10, 256.0, e))) is not None
    ]
    text = (
        f"At m = 2^10, ε >= 2, SMM is around {stated:g} (up to {2 * stated:g}), "
        f"DDG and Skellam under {stated:g} below DPSGD"
    )
    return judged(text, "Section 6.2", [(case, gap, gap <= most) for case, gap, most in gaps], "points")


def _cpsgd(known: Accuracies) -> list[Case]:
    return [
        (f"2^{bits}, ε = {e:g}", mean.value, mean.value < 20)
        for bits, scale in SCALES.items()
        for e in EPSILONS
        if (mean := known.at("cpsgd", bits, scale, e)) is not None
    ]


def own_claims(rows: Sequence[Row], dataset: str) -> list[Claim]:
    """SMM with the tight bound at the planner's γ, beside DPSGD and the paper's SMM.

    DPSGD has the best accounting (PLD).
    """
    known = Accuracies(rows, dataset)

    def below(bits: int, epsilon: float, most: float) -> tuple[str, float | None, bool]:
        gap = known.gap(("gaussian-pld", 8, 0.0, epsilon), ("smm-auto", bits, 0.0, epsilon))
        return f"{bits} bits, ε = {epsilon:g}", gap, gap is not None and gap <= most

    def above(bits: int, epsilon: float, rival_bits: int) -> tuple[str, float | None, bool]:
        rival: tuple[Any, ...] = ("smm-paper", rival_bits, SCALES[rival_bits], epsilon)
        gap = known.gap(("smm-auto", bits, 0.0, epsilon), rival)
        return f"{bits} bits, ε = {epsilon:g}", gap, gap is not None and gap > 0

    byte = [below(8, epsilon, 0.5) for epsilon in (1.0, 3.0, 5.0)]
    few = [below(6, 3.0, 0.6), below(4, 3.0, 0.8), below(3, 3.0, 2.0)]
    better = [above(bits, epsilon, bits) for bits in (6, 8) for epsilon in EPSILONS]
    least = [above(bits, 3.0, 8) for bits in (2, 3)]
    rival: tuple[Any, ...] = ("smm-paper", 8, 64.0, 3.0)
    given = [
        (f"{bits} bits, γ = {scale:g}", gap, gap is not None and gap > 0)
        for bits, scale in GIVEN_SCALES.items()
        for gap in (known.gap(("smm-tight", bits, scale, 3.0), rival),)
    ]
    return [
        claim_of_cases("SMM tight, 8 bits: within 0.5 points of DPSGD (PLD accounting)", "skelmix", byte),
        claim_of_cases(
            "SMM tight, ε = 3: within 0.6, 0.8, 2 points of DPSGD at 6, 4, 3 bits", "skelmix", few
        ),
        claim_of_cases(
            "SMM tight is above SMM with the paper's bound at 6 and 8 bits, every ε", "skelmix", better
        ),
        claim_of_cases("SMM tight at 2 and 3 bits is above the paper's bound at 8 bits", "skelmix", least),
        claim_of_cases("... with γ given by hand, not the planner's", "skelmix", given),
    ]
