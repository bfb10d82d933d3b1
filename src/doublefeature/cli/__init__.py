"""The command line: every command parses, calls one library function and prints.

Data go to stdout, messages and progress to stderr. Exit codes: 0 ok, 2 wrong usage or bad input, 3 environment,
1 a bug, 130 interrupted after a checkpoint.
"""

from doublefeature.cli.app import app, main

__all__ = ["app", "main"]
