"""Plans whose sums carry exactly the noise that was accounted for, whoever drops out."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import skelmix as sk
from skelmix.accounting.openings import SPARSE_GRAPH_FAILURE
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.planning import account, privacy_report
from skelmix.secagg.graph import choose

TARGET = sk.PrivacyTarget(3.0, 1e-5)


def planned(cohort, *, mechanism="smm", bound="gdp", rounds=100, **options):
    bound = bound if mechanism == "smm" else "tight"
    return sk.plan(
        options.pop("target", TARGET), dimension=64, bits=16, bound=bound, rounds=rounds, mechanism=mechanism,
        cohort=cohort, scale=64.0, **options,
    )  # fmt: skip


def completed(cohort, rounds=100):
    """The cohort of a plan, without the plan around it."""
    return cohort.with_least_survivors(TARGET.delta, rounds)


def card_of(cohort):
    return [f"{fact.name}: {fact.value}" for part in planned(cohort).report.sections for fact in part.facts]


COHORT = sk.Cohort(240, 60_000, dropout_tolerance=0.1)


@pytest.mark.parametrize("mechanism", ["smm", "skellam"])
@pytest.mark.parametrize(
    "options", [{"dropout_tolerance": 0.1}, {"colluding": 5}, {"dropout_tolerance": 0.3, "colluding": 5}]
)
def test_amplification_is_proved_with_dropouts_and_colluders(mechanism, options):
    report = planned(sk.Cohort(240, 60_000, **options), mechanism=mechanism).report
    assert report.modelled == ""
    assert "proved by" in str(report)


def test_the_law_of_dropouts_is_stated_as_an_assumption():
    law = "drops out with probability {} at most, independently of the others"
    card = lambda cohort: " ".join(str(planned(cohort).report).split())  # noqa: E731
    assert law.format(0.05) in card(replace(COHORT, dropout_rate=0.05))
    assert law.format(0.1) in card(COHORT)
    assert "drops out with" not in card(sk.Cohort(240, 60_000))
    assert "one per round, whether its sum opens or not" in card(COHORT)  # T of the proof counts draws


@pytest.mark.parametrize("options", [{}, {"colluding": 5}, {"dropout_rate": 0.05, "dropout_tolerance": 0.3}])
def test_amplification_is_proved_for_cohorts_of_fixed_size_too(options):
    cohort = replace(COHORT, sampling="fixed", **options)
    plan = planned(cohort, bound="rdp")
    report = plan.report
    assert report.modelled == ""
    assert report.dropout_rate == (cohort.dropout_rate or cohort.dropout_tolerance)
    assert plan.cohort.least_survivors <= cohort.min_survivors(240)
    left = planned(
        sk.Cohort(240, 60_000, sampling="fixed"), bound="rdp",
        target=sk.PrivacyTarget(3.0, 1e-5 - report.opening_delta),
    )  # fmt: skip
    assert plan.mechanism.total_noise == pytest.approx(left.mechanism.total_noise, rel=1e-4)
    rate, rounds = report.dropout_rate, plan.rounds
    need = plan.cohort.min_survivors(240, malicious=True)
    revealed = rounds * 240 / 60_000 * (stats.binom.cdf(need - 1, 239, 1 - rate) + SPARSE_GRAPH_FAILURE)
    assert 0 < revealed <= report.opening_delta == pytest.approx(1e-7)


def test_small_cohorts_of_fixed_size_with_dropouts_are_refused_and_a_cap_stays_a_model():
    with pytest.raises(PrivacyUnattainable, match="with sampling 'none' it does not"):
        planned(sk.Cohort(6, 600, dropout_tolerance=0.3, sampling="fixed"), bound="rdp")
    capped = replace(COHORT, sampling="fixed", max_participations=5)
    modelled = planned(capped, bound="rdp").report.modelled
    assert "a cap changes who is left" in modelled
    assert "drop out" not in modelled
    never_reached = replace(capped, max_participations=10)
    assert planned(never_reached, bound="rdp", rounds=10).report.modelled == ""


@pytest.mark.parametrize("mechanism", ["dgm", "ddg"])
def test_other_mechanisms_keep_shares_and_say_so(mechanism):
    plan = planned(COHORT, mechanism=mechanism)
    assert plan.cohort.least_survivors is None
    assert "drop out" in plan.report.modelled
    assert plan.removable_noise == 0


def test_every_sum_has_the_noise_that_was_accounted_for():
    plan = planned(COHORT)
    assert plan.noise_in_sum == plan.removable_noise == plan.mechanism.total_noise
    assert plan.predicted.noise == pytest.approx(2 * plan.mechanism.total_noise / plan.mechanism.scale**2)
    for sampled in (150, 240, 400):
        shares = plan.cohort.encoding_shares(plan.mechanism.total_noise, sampled)
        assert plan.mechanism.total_law(sampled, shares).rate == plan.noise_in_sum  # exactly


@pytest.mark.parametrize("cohort", [
    replace(COHORT, colluding=5), sk.Cohort.everyone(40, dropout_tolerance=0.2, colluding=7),
    sk.Silos(10, 1_000, 100, dropout_tolerance=0.3, colluding=2),
])  # fmt: skip
def test_what_colluders_do_not_know_is_at_least_what_was_accounted_for(cohort):
    plan = planned(cohort)
    least, known = plan.cohort.least_survivors, cohort.colluding
    naive = plan.noise_in_sum * (1 - known / least)
    worst = plan.noise_in_sum * (1 - known * (1 / least + 1 / (32 * least)))
    assert worst >= plan.mechanism.total_noise
    assert naive > 1.001 * plan.mechanism.total_noise  # the second term is there
    assert worst == pytest.approx(plan.mechanism.total_noise, rel=1e-12)
    assert plan.predicted.noise == pytest.approx(2 * plan.noise_in_sum / plan.mechanism.scale**2)


@pytest.mark.parametrize(
    "cohort", [replace(COHORT, colluding=5), sk.Cohort.everyone(40, dropout_tolerance=0.2, colluding=7)]
)
def test_whoever_adds_up_without_removing_noise_has_enough_of_it_by_default(cohort):
    """`Mechanism.encode` and `Cohort.shares` are safe with any secure sum that keeps the threshold."""
    plan = planned(cohort)
    total, least = plan.mechanism.total_noise, plan.cohort.least_survivors
    for shares in (None, plan.cohort.shares(cohort.expected), plan.cohort.shares(2 * cohort.expected)):
        honest = least - cohort.colluding
        assert plan.mechanism.total_law(honest, shares).rate >= total
    assert plan.mechanism.total_law(honest, plan.cohort.encoding_shares(total, cohort.expected)).rate < total


def test_the_noise_of_one_upload_is_what_account_takes():
    plan = planned(replace(COHORT, colluding=5))
    assert plan.noise_of_one * 240 == pytest.approx(plan.noise_in_sum)
    found = account(
        noise=plan.noise_of_one, delta=1e-5, dimension=64, bits=16, bound="gdp", rounds=100, scale=64.0,
        cohort=replace(COHORT, colluding=5),
    )  # fmt: skip
    assert found.mechanism.total_noise == pytest.approx(plan.mechanism.total_noise, rel=1e-9)
    assert found.report.epsilon == pytest.approx(plan.report.epsilon, rel=0.01)  # its own slack


@pytest.mark.parametrize("tolerance", [0.1, 0.2, 0.3])
def test_without_dropouts_the_error_falls_by_the_tolerance(tolerance):
    for cohort in (
        sk.Cohort.everyone(100, dropout_tolerance=tolerance),
        sk.Cohort(240, 60_000, dropout_tolerance=tolerance),
    ):
        plan = planned(cohort)
        shares = cohort.shares(cohort.expected)
        before = plan.mechanism.predicted_error(cohort.expected, 1.0, shares=shares)
        assert plan.predicted.noise / before.noise == pytest.approx(1 - tolerance, rel=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"colluding": 8}, {"dropout_rate": 0.03}, {"dropout_tolerance": 0.3}]
)
def test_delta_pays_for_what_opening_reveals(options):
    """The sum of both boundaries' probabilities, added up here independently, is within what was paid."""
    plan = planned(replace(COHORT, **options))
    cohort, rounds = plan.cohort, plan.rounds
    q, others = 240 / 60_000, 59_999
    rate = cohort.dropout_rate if cohort.dropout_rate is not None else cohort.dropout_tolerance
    too_few = stats.binom.cdf(cohort.least_survivors - 1, others, q * (1 - rate))
    dropouts = np.arange(400)
    lead = stats.binom.cdf(
        dropouts + cohort.colluding + 1, others - dropouts, q * (1 - rate) / (1 - q * rate)
    )
    no_majority = stats.binom.pmf(dropouts, others, q * rate) @ lead
    revealed = rounds * q * (too_few + no_majority + SPARSE_GRAPH_FAILURE)
    assert 0 < revealed <= plan.report.opening_delta == pytest.approx(1e-7)
    left = sk.PrivacyTarget(3.0, 1e-5 - plan.report.opening_delta)
    alone = planned(sk.Cohort(240, 60_000), target=left).mechanism.total_noise
    assert plan.mechanism.total_noise == pytest.approx(alone, rel=1e-4)  # the noise meets what is left


def test_no_more_of_delta_pays_for_opening_than_is_needed():
    plan = planned(sk.Cohort(40, 1_000, dropout_tolerance=0.1))
    assert 0.01 < plan.report.opening_delta / 1e-5 <= 0.05  # a hundredth does not suffice, a twentieth does
    fewest = replace(plan.cohort, least_survivors=3)
    assert fewest.delta_for_small_cohorts(1e-5, 100) > 0.01 * 1e-5


@pytest.mark.parametrize("options", [{"dropout_tolerance": 0.1}, {"colluding": 5}])
def test_the_report_states_what_of_delta_pays_for_opening(options):
    assert "opening: 1e-07 of δ pays for" in " ".join(card_of(sk.Cohort(240, 60_000, **options)))
    assert "of δ pays for" not in " ".join(card_of(sk.Cohort(240, 60_000)))  # a part in 10⁹


@pytest.mark.parametrize(
    ("cohort", "who"),
    [(sk.Cohort(240, 60_000), "participant"), (sk.Silos(10, 1_000, 100), "silo")],
)
def test_the_report_says_that_without_colluders_those_of_a_round_are_not_covered(cohort, who):
    own = f"each {who} of a round knows its own part of the noise: plan with colluding=1"
    assert any(own in line for line in card_of(cohort))
    assert not any("its own part of the noise" in line for line in card_of(replace(cohort, colluding=1)))


def test_a_tolerance_lowers_the_least_number_of_survivors_below_what_delta_allows():
    assert planned(replace(COHORT, dropout_rate=0.0)).cohort.least_survivors > 150
    patient = completed(replace(COHORT, dropout_rate=0.0, dropout_tolerance=0.5))
    assert patient.least_survivors == 120


def test_where_everyone_takes_part_the_tolerance_is_the_limit():
    plan = planned(sk.Cohort.everyone(40, dropout_tolerance=0.2))
    assert (plan.cohort.least_survivors, plan.cohort.min_survivors(40)) == (32, 32)
    assert plan.report.opening_delta == 0
    assert plan.report.dropout_rate is None
    silos = completed(sk.Silos(10, 1_000, 100, dropout_tolerance=0.3))
    assert silos.min_survivors(10) == silos.roster.min_survivors(10) == 7
    assert planned(sk.Cohort.everyone(40)).cohort.least_survivors is None  # nobody may drop out


def test_more_dropouts_than_the_law_states_make_openings_reveal_more_as_the_page_says():
    """A law of 0.1 where one in five drops out; sizes left out have a probability below 1e-4."""
    cohort, rounds, q, stays = completed(COHORT, rounds=1_000), 1_000, 240 / 60_000, 0.8
    sizes = range(180, 305)
    masses = stats.binom.pmf(sizes, 59_999, q)
    need = [max(cohort.min_survivors(n), cohort.min_survivors(n + 1)) for n in sizes]
    graphs = [choose(n, cohort.min_survivors(n), dropout_rate=0.1) for n in sizes]
    lonely = [
        n * stats.binom.cdf(g.share_threshold - 1, g.degree - 1, stays)
        for n, g in zip(sizes, graphs, strict=True)
    ]
    full = stats.binom.cdf(cohort.least_survivors - 1, 59_999, q * stays)
    sparse = masses @ stats.binom.cdf(np.array(need) - 1, sizes, stays)
    assert rounds * q * full == pytest.approx(3.4e-5, rel=0.02)
    assert rounds * q * sparse == pytest.approx(2.6e-2, rel=0.02)
    assert rounds * q * 2 * (masses @ lonely) == pytest.approx(5e-7, rel=0.1)


def test_a_malicious_server_needs_a_majority():
    cohort = completed(replace(COHORT, dropout_tolerance=0.4, colluding=4))
    assert cohort.min_survivors(300) < 150
    assert cohort.min_survivors(300, malicious=True) == (300 + 4) // 2 + 1


def test_a_round_needs_the_survivors_that_it_practically_always_has_but_none_beyond_the_tolerance():
    cohort = completed(COHORT)
    need = np.array([cohort.min_survivors(sampled) for sampled in range(100, 400)])
    for sampled, survivors in zip(range(100, 400), need, strict=True):
        if survivors > cohort.least_survivors:
            assert (
                stats.binom.cdf(survivors, sampled, 0.9)
                <= 2**-42
                < stats.binom.cdf(survivors + 1, sampled, 0.9)
            )
    assert need[0] == cohort.least_survivors < need[140] == 176
    dropouts = np.arange(100, 400) - need
    assert (np.diff(dropouts[need > cohort.least_survivors]) >= 0).all()  # a larger cohort allows no fewer
    reliable = completed(replace(COHORT, dropout_rate=0.001))
    assert reliable.min_survivors(400) == 360  # the tolerance stays the limit


def test_only_rounds_on_a_sparse_graph_need_the_survivors_that_are_likely():
    cohort = completed(COHORT)
    least = cohort.least_survivors
    for sampled in (least, 200, 240, 400):
        assert cohort.min_survivors(sampled, sparse=False) == least
        assert cohort.min_survivors(sampled, malicious=True) == max(least, sampled // 2 + 1)  # a full graph
    assert cohort.min_survivors(240) > least + 20
    small = completed(sk.Cohort(80, 8_000, dropout_tolerance=0.1))
    assert small.min_survivors(99) == small.least_survivors < small.min_survivors(100)
    assert cohort.failing_rounds(0.25, sparse=False) < 0.01 < 0.2 < cohort.failing_rounds(0.25)


def test_a_majority_that_delta_cannot_pay_for_is_not_promised():
    cohort = completed(sk.Cohort(60, 6_000, dropout_tolerance=0.4), rounds=10)
    assert not cohort.opens_by_majority(1e-5, 10)
    assert planned(COHORT).cohort.opens_by_majority(1e-5, 100)


def test_colluders_without_dropouts_need_everyone_and_no_law():
    plan = planned(sk.Cohort(240, 60_000, colluding=5))
    assert plan.cohort.min_survivors(250) == 250
    assert plan.cohort.min_survivors(100) > 100  # a cohort this small does not open
    assert plan.report.dropout_rate is None
    text = " ".join(str(plan).split())
    assert (
        f"opens a sum only if everyone in its cohort answers, at least {plan.cohort.least_survivors}:" in text
    )
    assert "in the sum whatever the cohort's size" in text
    assert "whoever drops out" not in text
    assert "excess" not in text


def test_the_card_says_how_many_must_survive_of_the_drawn_where_some_are_drawn():
    silos = planned(sk.Silos(10, 60_000, 240, dropout_tolerance=0.3), rounds=1)
    for plan, words in (
        (silos, "at least 7 silos must survive"),
        (planned(COHORT), "if 240 are drawn, at least 176 must survive"),
    ):
        card = [fact.value for part in plan.sections for fact in part.facts if fact.name == "cohort"]
        assert card[0].endswith(f"; {words}")


def test_cohorts_too_small_to_hide_are_refused_with_a_remedy():
    with pytest.raises(PrivacyUnattainable, match="expect more participants, fewer dropouts"):
        planned(sk.Cohort(12, 600, dropout_tolerance=0.3))


def test_a_plan_carries_its_least_number_of_survivors():
    plan = planned(replace(COHORT, colluding=3))
    again = sk.Plan.from_json(plan.to_json())
    assert again == plan
    assert again.noise_in_sum == plan.noise_in_sum
    digests = {plan.digest()}
    for change in ({"least_survivors": 100}, {"dropout_rate": 0.1}, {"dropout_rate": 0.05}):
        digests.add(replace(plan, cohort=replace(plan.cohort, **change)).digest())
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"least_survivors": 241}, "least_survivors = 241"),
        ({"least_survivors": 5}, "know all of the noise"),
        ({"least_survivors": 60}, "shares"),
        ({"dropout_rate": 1.0}, "dropout_rate"),
    ],
)
def test_a_dishonest_plan_is_refused(changes, message):
    data = json.loads(planned(replace(COHORT, colluding=6)).to_json())
    data["cohort"] |= changes
    with pytest.raises(InvalidInput, match=message):
        sk.Plan.from_json(json.dumps(data))


def test_a_plan_that_opens_when_delta_does_not_pay_for_it_is_refused():
    data = json.loads(planned(COHORT).to_json())
    data["cohort"]["least_survivors"] = data["mechanism"]["shares"] = 220
    with pytest.raises(PrivacyUnattainable, match="which reveals it"):
        sk.Plan.from_json(json.dumps(data))


def test_noise_that_does_not_come_in_pieces_cannot_claim_a_constant_level():
    data = json.loads(planned(COHORT, mechanism="dgm").to_json())
    data["cohort"]["least_survivors"] = data["mechanism"]["shares"] = 141
    with pytest.raises(InvalidInput, match="cannot be drawn in pieces"):
        sk.Plan.from_json(json.dumps(data))
    dgm = planned(COHORT, mechanism="dgm").mechanism
    with pytest.raises(InvalidInput, match="leave least_survivors out"):
        privacy_report(dgm, bound="tight", cohort=replace(COHORT, least_survivors=141), rounds=1, delta=1e-5)


def test_plans_without_dropouts_keep_their_digests():
    assert "dropout_rate" not in json.loads(planned(sk.Cohort(240, 60_000)).to_json())["cohort"]
