"""Settings and wiring. Imports every app and is imported by none."""

# Here, so that every process which reads the settings publishes to our broker: `current_app` is else Celery's own.
from config.celery import app as celery_app

__all__ = ["celery_app"]
