"""The service catalogue and the leases: one disturbing operation for each target."""
