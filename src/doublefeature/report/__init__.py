"""One self-contained HTML page about a fitted model."""

from __future__ import annotations

from doublefeature.report.page import build_report, write_report

__all__ = ["build_report", "write_report"]
