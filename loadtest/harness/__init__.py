"""The common parts of all scenarios: clusters, Pods, meters, readers of Slurm's reports, budgets, and
the frame of each command."""
