"""The `pilothouse` command. Speaks REST and starts processes; imports no app."""
