"""Chains and what they tell."""
