"""Keys of auth/slurm and auth/jwt in Secrets: creation and rotation."""
