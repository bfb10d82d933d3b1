"""Other people's recommenders on the same footing: one adapter each, tuned, calibrated, timed and measured alike."""
