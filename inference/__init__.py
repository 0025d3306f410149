"""Models, versions, nodes and replicas, and the data plane that serves them."""
