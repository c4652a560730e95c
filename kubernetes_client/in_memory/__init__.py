"""A small kube-apiserver in memory: `protocol.Kubernetes` without a network, for tests.

The same contract tests (tests/kubernetes_client/test_contract.py) pass for this server and for a real
kube-apiserver. This server leaves out: defaults and validation of fields, admission, permissions,
finalizers, generations, garbage collection, pages that expire.
"""

from kubernetes_client.in_memory.kubernetes import InMemoryKubernetes

__all__ = ["InMemoryKubernetes"]
