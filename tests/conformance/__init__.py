"""Runs Kubernetes' own specs (end-to-end tests) of scheduling on the local cluster, with and without the
extender.

The Pods of the specs do not use Slurm. If a spec passes without the extender, the spec must also pass
with the extender. `make conformance` runs all specs in both ways, and writes build/conformance.json.
"""
