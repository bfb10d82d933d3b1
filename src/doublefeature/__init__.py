"""Recommendations from ordinal ratings that can say why and how sure."""

__version__ = "0.1.0.dev0"
