"""Examples in docstrings are true, and every public name has a docstring that shows one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import skelmix

ROOT = Path(skelmix.__file__).parents[2]


def _names() -> list[tuple[str, str]]:
    """(module, name) of everything that the reference lists; of a module that is listed as a whole, all that
    it defines. Exceptions need no example."""
    found = []
    for line in (ROOT / "docs" / "reference" / "api.md").read_text().splitlines():
        if not line.startswith("::: "):
            continue
        place = line.removeprefix("::: ").strip()
        module, _, name = place.rpartition(".")
        if name[0].isupper() or hasattr(importlib.import_module(module), name):
            listed = importlib.import_module(module)
            if not inspect.ismodule(getattr(listed, name)):
                found.append((module, name))
                continue
        whole = importlib.import_module(place)
        found += [
            (place, own)
            for own, value in vars(whole).items()
            if not own.startswith("_")
            and getattr(value, "__module__", "") == place
            and not (inspect.isclass(value) and issubclass(value, BaseException))
        ]
    return found


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


def test_all_of_the_root_package_is_listed() -> None:
    listed = {name for _, name in _names()}
    assert set(skelmix.__all__) - {"__version__"} <= listed


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
