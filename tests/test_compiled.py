"""Kernels named with a leading underscore have no door to Python: calling one there kills the process."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import doublefeature

SOURCES = sorted(Path(doublefeature.__file__).parent.rglob("*.py"))
COMPILED = {"kernel", "threaded"}


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def is_compiled(function: ast.FunctionDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id in COMPILED for mark in function.decorator_list)


def wrong_calls(tree: ast.Module) -> list[str]:
    """Return the calls of closed kernels in functions that are not compiled."""
    closed = {f.name for f in functions(tree) if is_compiled(f) and f.name.startswith("_")}
    return [
        f"{function.name} calls {call.func.id}"
        for function in functions(tree)
        if not is_compiled(function)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in closed
    ]


@pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])
def test_python_calls_only_kernels_with_a_door(source):
    assert wrong_calls(ast.parse(source.read_text(encoding="utf-8"))) == []


def test_check_sees_a_wrong_call():
    planted = "@kernel\ndef _closed(): ...\n\ndef plain():\n    _closed()\n"
    assert wrong_calls(ast.parse(planted)) == ["plain calls _closed"]
