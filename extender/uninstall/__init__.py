"""What is left in both systems when the extender is uninstalled, and what becomes of it by choice."""
