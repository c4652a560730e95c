"""A whole cluster on one machine: real Slurm, real Kubernetes control plane, simulated kubelets.

The demo, the tests and the load tests use the same cluster. The interface is
`deploy.local.cluster.Cluster` with a `deploy.local.spec.ClusterSpec`. The other modules are
internal. A cluster leaves no process behind. This file imports nothing, because the supervisor must
start fast.
"""
