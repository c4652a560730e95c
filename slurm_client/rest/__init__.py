"""A client of Slurm through slurmrestd's REST API."""
