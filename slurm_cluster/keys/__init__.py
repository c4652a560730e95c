"""Creates and rotates the keys of auth/slurm and auth/jwt in Secrets."""
