"""The floor that every app stands on, and the pages."""
