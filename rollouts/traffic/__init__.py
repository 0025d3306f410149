"""Where a rollout moves traffic: one file for each kind of target."""
