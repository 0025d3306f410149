"""Private instances of real services: free loopback ports, temporary folders, ended by process id."""
