"""Controls the pools of slurmd Pods: assigns to each Node of a pool a slurmd Pod of the pool's template,
and replaces the slurmd Pods after changes of the pool."""
