"""The data plane. No Django, no database, no Redis: a node alone can run it."""
