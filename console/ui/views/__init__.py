"""Pages that belong to no single app, one module for each area."""
