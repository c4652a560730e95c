"""Makes Slurm's topology from the labels of Nodes, keeps the topology current, and draws it."""
