"""Block updates of the sampler, compiled."""
