"""Commands of `slurm-extender` besides `serve`. Each command uses Slurm and Kubernetes, and exits."""
