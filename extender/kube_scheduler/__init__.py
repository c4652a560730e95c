"""kube-scheduler's configuration, and the check for evictions for Pods that Slurm has not admitted."""
