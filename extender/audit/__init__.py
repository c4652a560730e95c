"""Compares both systems: a command that changes nothing, and the leader's periodic audit."""
