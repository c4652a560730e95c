"""Slurm by slurmrestd's REST API."""
