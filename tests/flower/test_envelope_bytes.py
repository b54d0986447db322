"""What Flower adds to the bytes that a node uploads in a round: the page on low rates states it."""

from __future__ import annotations

import re
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from helpers.silo_apps import NODES
from skelmix.flower import SecureGrid
from skelmix.flower.records import PARTS, RECORD

PAGE = Path(__file__).parents[2] / "docs/explanation/fewer-coordinates.md"


def on_the_wire(message):
    """Bytes of a message as Flower sends it: its objects, and the tree that names them."""
    objects = get_all_nested_objects(message).values()
    return sum(len(held.deflate()) for held in objects) + get_object_tree(message).ByteSize()


def test_the_envelope_of_a_round_is_what_the_page_states(fleet, planned, arrays):
    nodes = fleet()
    replies = []
    pull = nodes.pull_messages

    def watched(message_ids):
        found = list(pull(message_ids))
        replies.extend(found)
        return found

    nodes.pull_messages = watched
    grid = SecureGrid(nodes, planned(rounds=3), phase_timeout=5.0, patience=0.2, poll=0.01)
    content = RecordDict({"arrays": arrays})
    for round in range(2):
        if round:
            replies.clear()  # the first round also joins and shares keys
        requests = [Message(content, dst_node_id=node, message_type="train") for node in NODES]
        assert list(grid.send_and_receive(requests))
    assert grid.history[-1].waves == 2
    assert len(replies) == 2 * len(NODES)
    added = dict.fromkeys(NODES, 0)
    for reply in replies:
        record = reply.content.config_records[RECORD]
        carried = sum(len(value) for name, value in record.items() if name in PARTS)
        added[reply.metadata.src_node_id] += on_the_wire(reply) - carried
    stated = re.search(r"Flower's takes ([\d,]+) bytes", PAGE.read_text())
    assert stated
    expected = int(stated[1].replace(",", ""))
    for node, found in added.items():
        assert abs(found - expected) <= 40, f"node {node}: {found}; numbers take a few bytes more or less"
