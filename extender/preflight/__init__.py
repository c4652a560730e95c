"""Compares an installation's settings with both systems. Each check is a function of facts."""
