"""The ready ClientApp of a party: it answers questions from its own file, within its own policy."""

from __future__ import annotations

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from skelmix.flower.desk import Desk
from skelmix.flower.mod import question_mod
from skelmix.flower.silo import file_update

app = ClientApp(mods=[question_mod])


@app.train()
def answer(message: Message, context: Context) -> Message:
    """Add up the party's file; the mod has checked and charged the question by now."""
    update = file_update(Desk.opened(context.node_config).policy.data)
    return Message(RecordDict({"update": update}), reply_to=message)
