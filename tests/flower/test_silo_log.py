"""What the logs of silos and of their server say."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import RecordDict
from torch import nn

from helpers.silo_apps import RECORDS, data_of, network, one_round, silo_plan, use
from skelmix.flower import silo_update


def breaking(places):
    """An app of whose records those at `places` cannot be used."""

    def train(message, context):
        x, y = data_of(context.node_id)
        x[places] = np.inf
        return RecordDict({"update": silo_update(network(), nn.functional.cross_entropy, x, y)})

    return train


@pytest.mark.parametrize("clip", ["fixed", "adaptive"])
@pytest.mark.parametrize(("places", "said"), [(slice(None), 4), (slice(1, None), 0)], ids=["all", "not all"])
def test_a_silo_none_of_whose_records_can_be_used_says_so_in_its_own_log(fleet, caplog, clip, places, said):
    nodes = fleet()
    use(nodes, breaking(places))
    one_round(nodes, silo_plan(batch=200, clip=clip))
    assert caplog.text.count(f"all {RECORDS} records that were drawn add zero") == said


def test_the_servers_log_promises_no_metrics_that_a_silo_would_not_send(fleet, caplog):
    caplog.set_level("INFO")
    nodes = fleet()
    use(nodes)
    one_round(nodes, silo_plan(rounds=1))
    (line,) = (line for line in caplog.text.splitlines() if "withheld" in line)
    assert "none leaves a node" in line
    assert "public_metrics" not in line
