"""Files and functions stay short enough to read at one sitting."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
PICTURES, EXAMPLES = TESTS.parent / "docs", TESTS.parent / "examples"
LONGEST_FILE, LONGEST_FUNCTION = 350, 60  # lines


WHOLE = pytest.mark.parametrize(
    ("directory", "fewest"),
    [(SOURCE, 200), (TESTS, 150), (PICTURES, 5), (EXAMPLES, 5)],
    ids=["src", "tests", "docs", "examples"],
)


@WHOLE
def test_no_file_is_too_long(directory, fewest):
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in directory.rglob("*.py")}
    assert len(lengths) > fewest
    assert {path.name for path, lines in lengths.items() if lines > LONGEST_FILE} == set()


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, *, signature: bool = True) -> int:
    """Lines of signature and body. Docstrings are not counted, since contracts may be long; nor are functions
    inside, which are judged by themselves."""
    inside = [node for node in function.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    left_out = [function.body[0], *inside] if ast.get_docstring(function) is not None else inside
    start = function.lineno if signature else function.body[0].lineno
    whole = (function.end_lineno or 0) - start + 1
    return whole - sum((node.end_lineno or 0) - node.lineno + 1 for node in left_out)


@WHOLE
def test_no_function_is_too_long(directory, fewest):
    """The signature of a command is not counted: it is the list of the command's options, one line each."""
    long = {}
    for path in directory.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = code_lines(node, signature=path.parent.name != "cli")
                if lines > LONGEST_FUNCTION:
                    long[f"{path.name}:{node.name}"] = lines
    assert long == {}


def test_a_long_function_would_be_noticed():
    body = "\n".join("    x = 1" for _ in range(LONGEST_FUNCTION))
    (function,) = ast.parse(f'def f(\n    a,\n):\n    """Line."""\n{body}\n').body
    assert code_lines(function) == LONGEST_FUNCTION + 3
    assert code_lines(function, signature=False) == LONGEST_FUNCTION
