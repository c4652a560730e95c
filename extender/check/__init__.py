"""Checks a running installation: Slurm must place and end a Pod, and another Pod must be refused."""
