"""Commands of `slurm-extender` besides `serve`. Each command does its work with Slurm and Kubernetes
once, and then exits."""
