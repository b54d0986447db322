"""Cards in a terminal: 80 columns, aligned, with words and units in one piece."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

import skelmix as sk
from helpers.prose import unwrapped
from skelmix.display import Fact, Section, card_text
from skelmix.display.document import tiles_html
from skelmix.planning.card import _bits_of

WORDS = "about 12 bits per weight, ε = 3 at δ ≤ 1e-05 over 1,000 rounds, 7,951 bytes: all is well " * 4


def card(width=80, **options):
    facts = (
        Fact("upload", WORDS),
        Fact("ε for the aggregator", "28.83", "cohorts drawn as agreed", **options),
    )
    return card_text("(3, 1e-05)-differential privacy", [Section("", facts), Section("Empty", ())], width)


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_lines_keep_within_the_width_and_values_begin_in_one_column(width):
    lines = card(width).splitlines()
    assert max(map(len, lines)) <= width
    starts = {re.match(r"  \S.*?\s{2,}|\s+", line).end() for line in lines[1:]}
    assert starts == {2 + len("ε for the aggregator") + 2}


@pytest.mark.parametrize("width", range(50, 90, 3))
def test_no_line_ends_between_a_number_and_its_unit(width):
    for line in card(width).splitlines():
        assert not re.search(r"(\d|=|≤|[εδ])$", line.rstrip(",:")) or line.endswith(("1e-05", "3"))
    assert unwrapped(WORDS) in unwrapped(card(width))


def test_sections_without_facts_are_left_out():
    assert "Empty" not in card()


PLANS = {
    "participants": sk.Cohort(
        50, 500, dropout_tolerance=0.1, colluding=2, contribute=0.5, max_participations=9
    ),
    "silos": sk.Silos(10, 1_000, 100, dropout_tolerance=0.1, colluding=1),
    "everyone": sk.Cohort.everyone(50),
}


@pytest.mark.parametrize("who", PLANS)
@pytest.mark.parametrize("mechanism", ["smm", "gaussian"])
def test_the_card_of_a_plan_fits_a_terminal_and_says_all_facts(who, mechanism):
    if (who, mechanism) == ("silos", "gaussian"):
        pytest.skip("the central Gaussian has no silos")
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=500, bits=12, rounds=20, bound="rdp", cohort=PLANS[who],
        mechanism=mechanism,
    )  # fmt: skip
    shown = str(plan.report)
    assert max(map(len, shown.splitlines())) <= 80
    for section in plan.report.sections:
        for fact in section.facts:
            assert unwrapped(f"{fact.name} {fact}") in unwrapped(shown)


def card_of(**options):
    plan = sk.plan(sk.PrivacyTarget(3.0, 1e-5), **({"dimension": 50, "rounds": 1} | options))
    return plan, unwrapped(str(plan))


def test_noise_is_said_with_its_unit_and_of_those_who_add_it():
    plan, shown = card_of(bits=16, cohort=PLANS["everyone"], mechanism="ddg")
    assert plan.mechanism.noise**2 * 50 == pytest.approx(plan.noise_in_sum)
    assert "noise σ = " in shown
    assert "per participant, variance " in shown
    _, shown = card_of(bits=16, cohort=sk.Cohort(50, 500), mechanism="gaussian")
    assert "one standard deviation, added to the sum by the aggregator" in shown
    assert "scale γ" not in shown, "the central reference sends floating-point numbers"
    _, shown = card_of(bits=16, cohort=sk.Silos(4, 100, 100, colluding=1), bound="rdp")
    assert re.search(r"noise \S+ per silo, ", shown)
    assert "up to 1 other silo may give its own noise" in shown


def test_a_card_without_sampling_says_nothing_about_draws():
    _, shown = card_of(bits=16, cohort=sk.Silos(4, 100, 100), bound="rdp")
    assert "it knows that every record takes part" in shown
    assert "before sampling" not in shown
    _, shown = card_of(bits=16, cohort=PLANS["everyone"], mechanism="ddg")
    assert "50 of 50 (not sampled)" in shown


@pytest.mark.parametrize("settings", [{"dropout_tolerance": 0.4}, {"colluding": 3}])
def test_the_two_thresholds_of_a_sampled_cohort_are_told_apart(settings):
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5),
        dimension=8,
        bits=16,
        rounds=1_000,
        cohort=sk.Cohort(240, 60_000, **settings),
    )
    least, expected = plan.report.least_survivors, plan.report.min_survivors
    assert least < expected
    shown = unwrapped(plan)
    must = "all" if expected == 240 else f"at least {expected}"
    assert f"; if 240 are drawn, {must} must survive" in shown
    some_may_drop_out = (
        f"opens a sum only with at least {least} survivors, however small the cohort is; by default, a "
        f"cohort of the expected size needs {expected}. Excess noise is removed"
    )
    nobody_may = f"opens a sum only if everyone in its cohort answers, at least {least}: "
    assert (nobody_may if expected == 240 else some_may_drop_out) in shown


@pytest.mark.parametrize(("value", "large"), [("± 411.6", True), ("none", True), ("one participant", False)])
def test_a_tile_with_a_number_is_set_large(value, large):
    assert ("class=words" not in tiles_html([Fact("error", value)])) == large


@pytest.mark.parametrize("bits", [1, 2])
def test_one_bit_is_in_the_singular(bits):
    plan, _ = card_of(bits=16, cohort=PLANS["everyone"], mechanism="ddg")
    named = _bits_of(SimpleNamespace(rate=bits + 1e-4))
    assert named == ("bit" if bits == 1 else "bits")
    assert _bits_of(plan) == "bits"


def test_the_verdict_says_what_is_not_proved_or_not_private():
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=500, bits=12, rounds=20, bound="rdp",
        cohort=PLANS["participants"],
    )  # fmt: skip
    assert "model" not in replace(plan.report, modelled="").verdict
    assert "one step is a model, not a proof" in replace(plan.report, modelled="what it assumes").verdict
    assert "not private" in replace(plan.report, reproducible=True).verdict
    assert "had this not been a simulation" in replace(plan.report, simulated=True).verdict
    assert "not against the aggregator" in replace(plan.report, central=True).verdict
