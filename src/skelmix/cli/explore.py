"""`skelmix explore`: try out plans on a page of your own."""

from __future__ import annotations

import socket
import threading
import webbrowser
from typing import Annotated

import typer

from skelmix.cli.console import err


def register(app: typer.Typer) -> None:
    @app.command()
    def explore(
        port: Annotated[
            int, typer.Option(help="Port on 127.0.0.1; default: a free one.", min=0, max=65535)
        ] = 0,
        browser: Annotated[
            bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
        ] = True,
    ) -> None:
        """Play with a plan on a local page: sliders, live answers from the planner, charts.

        It listens on this machine only, and answers only those who know the token in the address. Ctrl-C ends
        it.

        Example: skelmix explore
        """
        from skelmix.explore.server import serve

        with err.status("starting the planner"):
            listening = _listen(port)
            address, run = serve(listening)
        print(address, flush=True)
        err.print(
            "this page is for you only: the address has a secret token. Ctrl-C ends it", highlight=False
        )
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        run()


def _listen(port: int) -> socket.socket:
    from skelmix.errors import InvalidInput

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen()  # whoever comes before the server runs waits
    except OSError as error:
        listening.close()
        raise InvalidInput(
            f"port = {port}: cannot listen there ({error.strerror}); leave --port out for a free one"
        ) from error
    return listening
