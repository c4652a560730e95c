"""Parts of every scenario: clusters, Pods, meters, Slurm's reports, a command and its verdict."""
