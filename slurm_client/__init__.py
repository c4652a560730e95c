"""A typed async client of Slurm's REST API, and a small Slurm in memory that behaves the same.

Knows nothing of Kubernetes nor of the rest of the project.
"""
