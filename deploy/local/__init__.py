"""A whole cluster on one machine: real Slurm, real Kubernetes control plane, simulated kubelets.

The demo, the tests and the load tests use the same cluster. The interface is
`deploy.local.cluster.Cluster` with a `deploy.local.spec.ClusterSpec`. The other modules are internal. No
process of a cluster outlives the cluster. This file imports nothing, because every start of a supervisor
(processes/supervisor.py) imports this file and must be fast.
"""
