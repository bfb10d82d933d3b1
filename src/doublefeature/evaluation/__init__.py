"""How good predictions are: reproducible splits, scores with standard errors, rules that need no model."""
