"""Files and functions stay short enough to read at one sitting."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
LONGEST_FILE, LONGEST_FUNCTION = 350, 60  # lines
TO_BE_SPLIT = {"plans.py", "trainer.py"}  # remove a name when its file is short enough; add none


def test_no_file_is_too_long():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert len(lengths) > 200
    assert {path.name for path, lines in lengths.items() if lines > LONGEST_FILE} == TO_BE_SPLIT


def body_lines(function: ast.FunctionDef) -> int:
    """Lines of the body without its docstring: options of a command and contracts are not code."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return 0 if not body else (function.end_lineno or 0) - body[0].lineno + 1


def test_no_function_is_too_long():
    long = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name != "register":  # holds a command
                lines = body_lines(node)
                if lines > LONGEST_FUNCTION:
                    long[f"{path.name}:{node.name}"] = lines
    assert long == {}
