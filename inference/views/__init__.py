"""Pages of services, versions, replicas and nodes."""
