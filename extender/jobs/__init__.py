"""The Slurm job of a workload: its phases, its owner, its differences from the request, and its slots.
Pure functions."""
