"""Every cohort that is drawn in secret is paid for as a round, whatever becomes of it."""

from __future__ import annotations

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

import skelmix as sk
from skelmix.errors import BudgetExhausted, InvalidInput, RoundFailed
from skelmix.flower import ClientPolicy, SecureGrid
from skelmix.flower.cohort_draw import draw

QUICK = {"phase_timeout": 0.2, "patience": 0.05, "poll": 0.01}
POLICY = ClientPolicy(min_cohort=2, max_population=4)


@pytest.fixture
def drawn_plan(planned):
    """Three of four nodes in each of three rounds."""
    return planned(cohort=sk.Cohort(3, 4, sampling="fixed"))


def run(grid, arrays, nodes=range(1, 5)):
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"lr": 0.1})})
    messages = [Message(content, dst_node_id=node, message_type="train") for node in nodes]
    return grid.send_and_receive(messages, timeout=0.2)


def test_a_cohort_that_shares_no_keys_is_charged_and_its_number_is_not_used_again(fleet, drawn_plan, arrays):
    nodes = fleet(policy=POLICY)
    nodes.behave = lambda node, parts: "silent" if "share" in parts else "ok"
    grid = SecureGrid(nodes, drawn_plan, **QUICK)
    for attempts in (1, 2):
        assert run(grid, arrays) == []
        assert grid.ledger.charged == attempts
    assert nodes.calls == []
    nodes.behave = lambda node, parts: "ok"
    assert run(grid, arrays)
    assert [(record.round, record.opened) for record in grid.history] == [(0, False), (1, False), (2, True)]
    with pytest.raises(BudgetExhausted):
        run(grid, arrays)


def test_nothing_is_charged_before_a_cohort_can_be_drawn(fleet, drawn_plan, arrays):
    nodes = fleet(policy=POLICY)
    grid = SecureGrid(nodes, drawn_plan, **QUICK)
    assert run(grid, arrays, nodes=[1, 2]) == []  # too few to draw from
    assert "more often than the plan accounts for" in grid.history[-1].reason
    nodes.behave = lambda node, parts: "silent"
    assert run(grid, arrays) == []  # drawn by the server, who does not know whether anybody is there
    assert grid.ledger.charged == 1


def test_all_rounds_of_the_plan_are_run_although_cohorts_are_drawn_ahead(fleet, drawn_plan, arrays, caplog):
    caplog.set_level("INFO")
    grid = SecureGrid(fleet(policy=POLICY), drawn_plan)
    for charged in (2, 3, 3):  # the next one's cohort too, as long as there is a next one
        assert run(grid, arrays)
        assert grid.ledger.charged == charged
    assert [record.round for record in grid.history] == [0, 1, 2]
    assert [record.waves for record in grid.history] == [4, 2, 2]
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("round ")]
    assert [line.rsplit("; ", 1)[1] for line in said] == ["2 rounds left", "1 round left", "0 rounds left"]
    with pytest.raises(BudgetExhausted):
        run(grid, arrays)


def test_a_cohort_drawn_ahead_that_shares_no_keys_is_charged(fleet, drawn_plan, arrays):
    nodes = fleet(policy=POLICY)
    nodes.behave = lambda node, parts: "silent" if "share" in parts and nodes.calls else "ok"
    grid = SecureGrid(nodes, drawn_plan, **QUICK)
    assert run(grid, arrays) == []  # its unmasking travels with the next round's key sharing: both are lost
    nodes.behave = lambda node, parts: "ok"
    assert run(grid, arrays)
    assert [(record.round, record.opened) for record in grid.history] == [(0, False), (2, True)]
    assert grid.ledger.charged == 3


def test_a_cohort_whose_nodes_are_not_proposed_any_more_is_not_used_and_stays_charged(fleet, planned, arrays):
    plan = planned(cohort=sk.Cohort(3, 4, sampling="fixed"), rounds=4)
    nodes = fleet(policy=POLICY)
    grid = SecureGrid(nodes, plan, **QUICK)
    assert run(grid, arrays)
    ahead = grid._coordinator._prepared
    others = [node for node in range(1, 5) if node not in ahead.sharers]
    assert run(grid, arrays, nodes=[*others, *sorted(ahead.sharers)[:2]])  # taken as the strategy's own draw
    assert [record.round for record in grid.history] == [0, 2]


def test_a_server_that_dies_while_keys_are_shared_has_paid_for_the_draw(fleet, drawn_plan, arrays, tmp_path):
    nodes = fleet(policy=POLICY)

    def die(node, parts):
        if "share" in parts:
            raise KeyboardInterrupt
        return "ok"

    nodes.behave = die
    with pytest.raises(KeyboardInterrupt), SecureGrid(nodes, drawn_plan, ledger=tmp_path / "l") as grid:
        run(grid, arrays)
    with SecureGrid(nodes, drawn_plan, ledger=tmp_path / "l") as again:
        assert again.ledger.charged == 1
        nodes.behave = lambda node, parts: "ok"
        assert run(again, arrays)
        assert again.history[0].round == 1


COHORTS = {
    "poisson": (sk.Cohort(300, 1000), range(1000), 1000, 1),
    "fixed": (sk.Cohort(3, 9, sampling="fixed"), range(9), 9, 1),
    "fixed by the strategy": (sk.Cohort(3, 9, sampling="fixed"), range(3), 9, 1),
    "everyone": (sk.Cohort.everyone(9), range(9), 9, 0),
    "all of them, fixed": (sk.Cohort(9, 9, sampling="fixed"), range(9), 9, 0),
}


@pytest.mark.parametrize("kind", COHORTS)
def test_a_draw_is_charged_once_and_a_roster_that_is_no_secret_is_not(kind):
    cohort, nodes, connected, times = COHORTS[kind]
    charges = []
    draw(cohort, set(nodes), charge=lambda: charges.append(1), connected=connected)
    assert len(charges) == times


def test_nodes_that_happen_to_be_as_many_as_expected_are_no_draw_of_the_strategys():
    cohort, charges = sk.Cohort(3, 9, sampling="fixed"), []
    for connected in (None, 3):
        with pytest.raises(
            RoundFailed, match="3 of 9 nodes are here: drawing 3 of them would sample each more"
        ):
            draw(cohort, {1, 5, 7}, charge=lambda: charges.append(1), connected=connected)
    assert charges == []
    assert draw(cohort, {1, 5, 7}, connected=9) == {1, 5, 7}


def test_a_strategy_that_draws_from_fewer_nodes_than_the_population_samples_each_too_often():
    cohort = sk.Cohort(3, 9, sampling="fixed")
    for connected in (4, 8):
        with pytest.raises(RoundFailed, match=f"{connected} of 9 nodes are here"):
            draw(cohort, {1, 5, 7}, charge=lambda: pytest.fail("nothing is drawn"), connected=connected)
    with pytest.raises(InvalidInput, match="10 nodes take part, the plan is for 9"):
        draw(cohort, {1, 5, 7}, connected=10)


def test_a_strategys_draw_counts_whoever_is_connected(fleet, planned, arrays):
    """It draws three nodes of four, which the plan counts as three of nine."""
    plan = planned(cohort=sk.Cohort(3, 9, sampling="fixed"))
    grid = SecureGrid(fleet(policy=ClientPolicy(min_cohort=2, max_population=9)), plan, **QUICK)
    assert run(grid, arrays, nodes=[1, 2, 4]) == []
    assert "4 of 9 nodes are here" in grid.history[-1].reason
    assert grid.ledger.charged == 0


def test_a_cohort_drawn_ahead_is_not_those_who_are_left(fleet, drawn_plan, arrays):
    """One of four nodes goes away: the three others are as many as expected, and no random draw."""
    nodes = fleet(policy=POLICY)
    grid = SecureGrid(nodes, drawn_plan, **QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "get_node_ids", lambda: [1, 2, 3])
        assert run(grid, arrays)
    assert grid.ledger.charged == 1
    assert run(grid, arrays)
    assert [record.round for record in grid.history] == [0, 1]


def test_whoever_is_connected_is_no_draw_of_the_strategys_either(fleet, drawn_plan, arrays):
    """Three of the plan's four nodes are online, and the strategy proposes all of them."""
    grid = SecureGrid(fleet(3, policy=POLICY), drawn_plan, **QUICK)
    assert run(grid, arrays, nodes=[1, 2, 3]) == []
    assert "3 of 4 nodes are here" in grid.history[-1].reason
    assert grid.ledger.charged == 0
