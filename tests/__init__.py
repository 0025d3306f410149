"""Tests: sentences as names, real parts on free loopback ports, everything ended by its process id."""
