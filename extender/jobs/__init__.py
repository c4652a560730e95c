"""One Slurm job, as one workload sees it: whose it is, whether somebody has altered it, what it has on
each node, and why it waits. Pure functions.
"""
