"""Compares both systems: the command `audit`, which changes nothing, and the leader's periodic
audit."""
