"""The command `slurm-cluster`, which has the programs of a Slurm cluster in Kubernetes."""
