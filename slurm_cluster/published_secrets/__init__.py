"""Writes Secrets for clients of this Slurm: a token of SlurmUser, auth/slurm's key, and a password."""
