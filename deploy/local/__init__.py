"""A whole cluster on one machine: real Slurm, real Kubernetes control plane, simulated kubelets.

The demo, the tests and the load tests use it alike. `deploy.local.cluster.Cluster` with a
`deploy.local.spec.ClusterSpec` is the whole interface; everything else here is how it keeps its
promise that nothing is left behind. (Nothing is imported here: the supervisor must start fast.)
"""
