"""Compares the settings of an installation with Slurm and Kubernetes. Each check is a function that
judges facts."""
