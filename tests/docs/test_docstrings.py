"""Examples in docstrings are true, and every public name has a docstring that shows one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import skelmix

ROOT = Path(skelmix.__file__).parents[2]


def _listed() -> list[tuple[str, str]]:
    """(package, name) of each name that the reference lists; `skelmix.errors` is listed as a whole."""
    lines = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8").splitlines()
    places = [line.removeprefix("::: ").strip() for line in lines if line.startswith("::: ")]
    return [
        (package, name)
        for package, _, name in (place.rpartition(".") for place in places)
        if name != "errors"
    ]


def _names() -> list[tuple[str, str]]:
    """(module, name) of every class and function that the reference lists, where it is defined."""
    named = [(getattr(importlib.import_module(package), name), name) for package, name in _listed()]
    return [
        (kind.__module__, name) for kind, name in named if inspect.isclass(kind) or inspect.isfunction(kind)
    ]


def _exporting_packages() -> list[str]:
    """Packages that export names, which makes them public; `bounds` and the certificates are parts inside."""
    names = [
        "skelmix",
        *(info.name for info in pkgutil.iter_modules(skelmix.__path__, "skelmix.") if info.ispkg),
    ]
    return [name for name in names if getattr(importlib.import_module(name), "__all__", None)]


def test_examples_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doctests of the modules that hold a public name."""
    monkeypatch.chdir(tmp_path)
    tried = 0
    for module in sorted({module for module, _ in _names()}):
        result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
        assert result.failed == 0, f"{module}: see the captured output"
        tried += result.attempted
    assert tried > 40


@pytest.mark.parametrize(("module", "name"), _names())
def test_a_public_name_has_a_docstring_with_an_example(module: str, name: str) -> None:
    found = getattr(importlib.import_module(module), name)
    text = inspect.getdoc(found) or ""
    assert len(text) > 60, f"{module}.{name} has no docstring"
    assert ">>> " in text or "```python" in text or "Example" in text, f"{module}.{name} shows no example"


def test_the_reference_lists_exactly_what_the_packages_export() -> None:
    exported = {
        (package, name)
        for package in _exporting_packages()
        for name in importlib.import_module(package).__all__
        if name != "__version__"
    }
    at_the_front_door = {("skelmix.planning", name) for name in skelmix.__all__}
    at_the_front_door |= {("skelmix.rounds", name) for name in skelmix.__all__}
    assert sorted(_listed()) == sorted(exported - at_the_front_door)
    assert len(_exporting_packages()) >= 10


def test_guides_and_examples_import_public_names_only() -> None:
    pages = [ROOT / "README.md", ROOT / "docs/start.md", *(ROOT / "docs/guides").glob("*.md")]
    pages += (ROOT / "examples").rglob("*.py")
    public, seen = {*_exporting_packages(), "skelmix.errors"}, 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        imported = re.findall(r"^\s*(?:from|import) (skelmix[\w.]*)", text, re.MULTILINE)
        assert set(imported) <= public, page
        seen += len(imported)
    assert seen > 40


@pytest.mark.parametrize("package", _exporting_packages())
def test_an_exported_name_is_no_module_of_its_package(package: str) -> None:
    """Else it would be the one or the other, depending on what was imported before."""
    found = importlib.import_module(package)
    modules = {info.name for info in pkgutil.iter_modules(found.__path__)}
    assert modules & set(found.__all__) == set()


def test_all_public_members_are_documented() -> None:
    """Public methods and properties of the public classes say what they do."""
    silent = []
    for module, name in _names():
        kind = getattr(importlib.import_module(module), name)
        if inspect.isclass(kind):
            silent += [
                f"{name}.{member}"
                for member, value in vars(kind).items()
                if not member.startswith("_")
                and (inspect.isfunction(value) or isinstance(value, property | classmethod))
                and not inspect.getdoc(getattr(kind, member))
            ]
    assert silent == []


def test_no_module_is_without_a_docstring() -> None:
    silent = []
    for info in pkgutil.walk_packages(skelmix.__path__, "skelmix."):
        spec = importlib.util.find_spec(info.name)
        assert spec is not None
        assert spec.origin is not None
        with open(spec.origin, encoding="utf-8") as file:
            source = file.read().lstrip()
        if source and not source.startswith(('"""', 'r"""', "#")):
            silent.append(info.name)
    assert silent == []
