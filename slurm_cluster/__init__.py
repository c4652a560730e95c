"""The programs of a Slurm that runs in Kubernetes: the command `slurm-cluster`."""
