"""Slurm's topology, made from the labels of Nodes, kept current and drawn."""
