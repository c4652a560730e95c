"""The control plane of a local cluster: configuration, processes and first objects."""
