"""Pages about load tests, one module for each."""
