"""The check of a running installation: Slurm places and ends a Pod, and another Pod is refused."""
