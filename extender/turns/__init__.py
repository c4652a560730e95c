"""Turns: the next placeholder to ask Slurm for a job, the next try of a refused request, and the Pods to
delete in any minute. Pure functions of records and of the ledger's clock.
"""
