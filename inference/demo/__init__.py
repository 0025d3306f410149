"""What a first visitor finds: a real model in three versions, two client tenants and a little traffic."""

SERVICE = "file-type"


class DemoUnavailable(Exception):
    """What the demo is made from is not installed."""
