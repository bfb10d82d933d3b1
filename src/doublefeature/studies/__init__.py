"""Experiments: simulate, fit, compare."""
