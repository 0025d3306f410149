"""Who did what to what, when and why: one immutable row for every change."""
