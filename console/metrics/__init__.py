"""Signals: one protocol, two sources (Prometheus, and the embedded one over the nodes own counters)."""
