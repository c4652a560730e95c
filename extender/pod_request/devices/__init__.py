"""A Pod's devices: ResourceClaims, and GPUs by other names than Slurm's."""
