"""Decides what the extender does for each placeholder, the Slurm job that holds resources for a Pod. The
code takes reports from Slurm and Kubernetes as events. The code does no I/O and reads no clock.

The decisions are effects. `extender.execution.dispatcher` carries out the effects, and reports each
outcome as an event.
"""
