"""What others need of this Slurm, in Secrets: a token of SlurmUser, the key of auth/slurm, a password."""
