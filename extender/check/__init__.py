"""Checks a running installation: Slurm must place a Pod, the Pod's job must end after the Pod, and the
webhook must refuse another Pod."""
