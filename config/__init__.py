"""Settings and wiring. Imports every app and is imported by none."""

# Named here so that whoever loads the settings also has the Celery app: a console without it would send its orders
# to Celery's default address, where nobody listens.
from config.celery import app as celery

__all__ = ["celery"]
