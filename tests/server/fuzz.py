"""Requests made from the API's description by schemathesis, against a real service."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import NamedTuple

from doublefeature.server.keys import new_key
from tests.server.parts import running

_CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 403, 404, 409, 413, 429, 503]
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 503]
"""
"""Bodies above the limit are refused by their size alone, whatever is in them."""


class Fuzzed(NamedTuple):
    """How many requests there were, how many failed on our side, and what schemathesis says."""

    requests: int
    server_errors: int
    passed: bool
    told: str


def fuzz(folder: Path, examples: int, work: Path, phases: str = "examples,coverage,fuzzing,stateful") -> Fuzzed:
    """Fuzz every operation with so many examples each, all checks on."""
    copy, keys = work / "model", work / "keys.json"
    shutil.copytree(folder, copy)
    key = new_key(keys, "fuzz", "write")
    (work / "schemathesis.toml").write_text(_CONFIG)
    with running(copy, "--keys", str(keys), "--rate", "1000000", log=work / "fuzz.log") as service:
        command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{service.address}api/v1/openapi.json"]
        command += ["--header", f"X-API-Key: {key}", "--checks", "all", "--max-examples", str(examples)]
        command += ["--phases", phases, "--seed", "1", "--no-color", "--request-timeout", "30"]
        found = subprocess.run(command, capture_output=True, text=True, cwd=work, check=False)
        text = _metrics(service.address, key)
    counts = [(int(status), int(n)) for status, n in re.findall(r'requests_total\{[^}]*status="(\d+)"\} (\d+)', text)]
    return Fuzzed(
        requests=sum(n for _, n in counts),
        server_errors=sum(n for status, n in counts if status >= 500),
        passed=found.returncode == 0,
        told=found.stdout + found.stderr,
    )


def _metrics(address: str, key: str) -> str:
    request = urllib.request.Request(f"{address}metrics", headers={"X-API-Key": key})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())
