"""Settings and wiring. Imports every app and is imported by none."""
