"""The commands of `slurm-extender` beside `serve`, each of which asks both systems once and ends."""
