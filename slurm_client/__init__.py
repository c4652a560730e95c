"""A typed async client of Slurm's REST API, and a small simulated Slurm in memory with the same
behaviour.

This package knows nothing of Kubernetes or of the rest of the project.
"""
