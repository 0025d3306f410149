"""Load tests: runs of the load tool against a service, and foreign results read the same way."""
