"""kube-scheduler's configuration, the deadline of its calls, and the check that kube-scheduler evicts no
Pods for a Pod that Slurm has not admitted."""
