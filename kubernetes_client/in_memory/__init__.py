"""A small kube-apiserver in memory: `protocol.Kubernetes` without a network, for tests.

It passes the same contract tests as the real one (tests/kubernetes_client/test_contract.py) and answers
as measured there: versions and their preconditions, strategic merge patches, status as a resource of
its own, graceful deletion, Bindings, lists in pages, watches with selectors and bookmarks, expiry. It
leaves out what no test has needed: defaults and validation of fields, admission, permissions,
finalizers, generations, garbage collection, pages that expire.
"""

from kubernetes_client.in_memory.kubernetes import InMemoryKubernetes

__all__ = ["InMemoryKubernetes"]
