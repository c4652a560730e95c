"""The keys of auth/slurm and auth/jwt in Secrets: made once, and rotated."""
