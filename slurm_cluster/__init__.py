"""Programs of a Slurm cluster in Kubernetes: the command `slurm-cluster`."""
