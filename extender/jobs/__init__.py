"""The Slurm job of a workload: phases, owner, alterations and slots. Pure functions."""
