"""Who goes next: which placeholder may ask Slurm for its job, when a refused request is made again, and
how many Pods may be deleted in a minute. Pure functions of records and of the ledger's clock.
"""
