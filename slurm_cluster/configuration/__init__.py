"""Configuration of slurmctld: trial, comparison with the running configuration, and installation."""
