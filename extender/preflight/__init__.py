"""Compares an installation's settings with both systems: each check is a function of facts."""
