"""What every app may use: errors, clock, events, the REST envelope. Imports nothing of the project."""
