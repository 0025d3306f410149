"""The node: what keeps plane and workers in the state that the newest snapshot asks for. No Django, no database."""
