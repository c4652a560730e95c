"""What others need of this Slurm, in Secrets: a token of SlurmUser, auth/slurm's key, a password."""
