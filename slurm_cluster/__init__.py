"""The program `slurm-cluster`: the configuration, the accounts and the keys of a Slurm in Kubernetes."""
