"""The long tier must not fail for a wrong name after an hour."""

import ast
import importlib
from pathlib import Path

from tests.correctness import bars


def test_everything_the_bars_import_inside_functions_exists() -> None:
    tree = ast.parse(Path(bars.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "__future__"]
    assert len(imports) > 10
    for node in imports:
        module = importlib.import_module(str(node.module))
        assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def test_the_bar_of_the_interval_holds_on_few_points() -> None:
    assert bars._numerics(0.01)[2]
