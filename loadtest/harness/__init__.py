"""The common parts of all scenarios: clusters, Pods, meters, Slurm's reports, and a command with its
verdict."""
