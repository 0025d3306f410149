"""Tenants, members, roles, tokens and quotas; the one permission function."""
