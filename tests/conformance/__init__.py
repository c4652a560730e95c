"""Kubernetes' own specs of scheduling, on the local cluster with and without the extender.

They know nothing of Slurm: their Pods are not ours. What passes without the extender has to pass with
it. `make conformance` runs them, once each way, and leaves build/conformance.json.
"""
