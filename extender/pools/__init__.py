"""Pools of slurmd Pods: assigns slurmd Pods of a template to Nodes, and replaces slurmd Pods after
changes."""
