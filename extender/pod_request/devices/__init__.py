"""Claims of a Pod for volumes and devices, and the rule for GPUs that native jobs could also use."""
