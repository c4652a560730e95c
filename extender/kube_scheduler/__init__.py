"""kube-scheduler's configuration, the deadline of its calls, and the check that it evicts no Pods for a
Pod that Slurm has not admitted."""
