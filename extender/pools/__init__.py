"""Pools of slurmd Pods: which Nodes run one, of which template, and when one may be replaced."""
