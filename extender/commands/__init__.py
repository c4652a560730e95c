"""Commands of `slurm-extender` besides `serve`. Each command reads both systems once and exits."""
