"""Parts of every scenario: clusters, Pods, meters, what Slurm says, a command and its verdict."""
