"""Compares Slurm with Kubernetes, for the command `audit` and for the leader's periodic audit. The
command changes nothing; the leader's audit corrects certain differences."""
