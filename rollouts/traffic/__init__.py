"""Where rolled-out versions run: one file for each kind of target."""
