"""`skelmix party`: let a party answer questions about its file, within its own policy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skelmix.cli.console import err

if TYPE_CHECKING:
    from skelmix.statistics.party_policy import PartyPolicy


def register(app: typer.Typer) -> None:
    @app.command()
    def party(
        policy: Annotated[Path | None, typer.Argument()] = None,
        superlink: Annotated[str | None, typer.Option(help="Address of the SuperLink, host:port.")] = None,
        root_certificates: Annotated[
            Path | None, typer.Option(help="Root certificate that the SuperLink's is checked with.")
        ] = None,
        insecure: Annotated[bool, typer.Option("--insecure", help="No TLS: for 127.0.0.1 only.")] = False,
        private_key: Annotated[
            Path | None, typer.Option(help="Key of this party, where the SuperLink authenticates SuperNodes.")
        ] = None,
        port: Annotated[
            int | None,
            typer.Option(help="Port on 127.0.0.1 for this party's own processes; default: a free one."),
        ] = None,
        example: Annotated[bool, typer.Option("--example", help="Print an example of a policy.")] = False,
    ) -> None:
        """Answer questions about this party's file until interrupted, within its policy.

        POLICY is the party's policy, a TOML file. Without --superlink the command checks policy and file,
        and prints what was spent so far.

        Example: skelmix party policy.toml --superlink stats.example.org:8000 --root-certificates ca.crt
        """
        from skelmix.errors import InvalidInput
        from skelmix.statistics.party_policy import EXAMPLE, PartyPolicy

        if example:
            print(EXAMPLE, end="")
            return
        if policy is None:
            raise InvalidInput("name the policy file; `skelmix party --example` prints one to start from")
        if superlink is None:
            read = PartyPolicy.read(policy)
            print(_state(read))
            _print_problems(read)
            return
        from skelmix.flower.ask import SuperLink
        from skelmix.flower.party_node import supernode

        tls = SuperLink(superlink, root_certificates, insecure).node_options
        if private_key is not None:
            tls = (*tls, "--auth-supernode-private-key", str(private_key.resolve()))
        command, environment = supernode(policy, superlink, port or _free_port(), tls)
        err.print(_state(PartyPolicy.read(policy)), markup=False, soft_wrap=True)
        os.execve(command[0], command, environment)


def _state(policy: PartyPolicy) -> str:
    """What the party answers and what it has spent."""
    from skelmix.flower.desk import ledger_of
    from skelmix.wording import counted, up

    charges = ledger_of(policy).charges()
    spent = up(sum(charge.epsilon for charge in charges))
    columns = ", ".join(sorted(policy.columns))
    there = "" if policy.data.is_file() else " (NOT THERE: this party counts as empty)"
    return "\n".join(
        [
            f"data        {policy.data}{there}",
            f"answers     up to ε = {policy.per_question.epsilon:g} per question, among {policy.parties} or "
            f"more parties, about: {columns}",
            f"spent       ε = {spent} of {policy.in_all.epsilon:g}, in {counted(len(charges), 'answer')}",
        ]
    )


def _print_problems(policy: PartyPolicy) -> None:
    """Print what is wrong with the file, at the start: an answer must not take longer for bad records."""
    from skelmix.statistics.party import file_notes

    for note in file_notes(policy.data, list(policy.columns), policy.numeric_columns):
        err.print(note, markup=False, soft_wrap=True)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
