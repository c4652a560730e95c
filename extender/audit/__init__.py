"""Compares Slurm with Kubernetes, for the command `audit` and for the leader's periodic audit. The
command changes nothing."""
