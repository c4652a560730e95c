"""Tries a configuration of slurmctld, compares it with the running configuration, and installs it."""
