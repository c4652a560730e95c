"""The kube-scheduler that asks the extender: how it is configured, and whether it evicts Pods for a Pod
that Slurm has not let in."""
