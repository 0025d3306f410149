"""Progressive delivery of model versions."""
