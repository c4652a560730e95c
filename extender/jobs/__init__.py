"""The Slurm job of a workload: phases, owner, differences from the request, and slots. Pure
functions."""
