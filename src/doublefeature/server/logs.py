"""One JSON line on stderr per request and event; addresses and bodies, which may tell about people, are left out."""

from __future__ import annotations

import json
import logging
import sys
import time

LOGGER = logging.getLogger("doublefeature.server")
_FIELDS = ("id", "method", "route", "status", "ms", "key", "kind", "trace", "model", "reason")


class JsonLines(logging.Formatter):
    """Writes the fields that are known to be safe, and nothing else."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        row: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        row |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        return json.dumps(row, default=str)


def start_logging() -> None:
    """Send the service's events to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
