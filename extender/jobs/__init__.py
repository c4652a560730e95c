"""The Slurm job of a workload: owner, alterations, slots, and pending reason. Pure functions."""
