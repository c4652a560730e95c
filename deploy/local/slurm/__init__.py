"""Slurm in a local cluster: the unpacked packages, configuration and processes."""
