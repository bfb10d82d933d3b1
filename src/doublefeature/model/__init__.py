"""State, ordinal likelihood, and the model forwards."""
