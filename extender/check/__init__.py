"""The check of an installation at work: a Pod is placed by Slurm and goes again, and one is refused."""
