"""Chaos experiments (not built yet): the folder is reserved so that import direction is checked from the start."""
