"""One Slurm job, as one workload sees it: whose it is, whether somebody has altered it, and what it has
on each node. Pure functions.
"""
