"""Pages of rollouts."""
