"""The control plane of a local cluster: configuration and processes."""
