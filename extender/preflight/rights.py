"""The rights that the extender uses, and those that an installation takes.

The first are what the chart's ClusterRole and Role give; a test holds both to what the client asks.
"""

from collections.abc import Iterator

from extender.control.shared_secret import NAME as SECRET
from extender.settings import Settings
from kubernetes_client.protocol import Right
from wellknown.names import LEASE

_CORE = ""
_CLAIMS = (
    ("persistentvolumeclaims", _CORE),
    ("persistentvolumes", _CORE),
    ("storageclasses", "storage.k8s.io"),
    ("resourceclaims", "resource.k8s.io"),
)
_WEBHOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_ADMISSION = "admissionregistration.k8s.io"


def of_extender(settings: Settings) -> tuple[Right, ...]:
    """Returns what the extender does with these settings."""
    return tuple(_of_extender(settings))


def _of_extender(settings: Settings) -> Iterator[Right]:
    own = settings.namespace
    for verb in ("get", "list", "watch", "patch", "delete"):
        yield Right(verb, "pods")
    yield Right("patch", "pods/status")
    yield Right("create", "pods/binding")
    for verb in ("get", "list", "watch"):
        yield Right(verb, "nodes")
    if settings.taint_nodes or settings.pools_file is not None:
        yield Right("patch", "nodes")
    yield Right("patch", "nodes/status")
    yield Right("get", "namespaces", name="kube-system")
    for kind, group in _CLAIMS:
        yield from (Right(verb, kind, group) for verb in ("list", "watch"))
    for verb in ("create", "list", "watch"):
        yield Right(verb, "events")
    yield Right("create", "leases", "coordination.k8s.io", own)
    for verb in ("get", "update"):
        yield Right(verb, "leases", "coordination.k8s.io", own, LEASE)
    yield Right("create", "secrets", namespace=own)
    for name in filter(None, (SECRET, settings.tls_secret)):
        yield from (Right(verb, "secrets", "", own, name) for verb in ("get", "update"))
    if settings.tls_secret is not None:
        for kind in _WEBHOOKS:
            for verb in ("get", "patch"):
                yield Right(verb, kind, _ADMISSION, name=settings.webhook_configuration)
    if settings.pools_file is not None:
        for verb in ("list", "create", "delete"):
            yield Right(verb, "controllerrevisions", "apps", settings.pools_namespace)


def of_installation(settings: Settings) -> tuple[Right, ...]:
    """Returns what whoever installs the chart has to be allowed."""
    own, rbac = settings.namespace, "rbac.authorization.k8s.io"
    cluster = [(kind, rbac) for kind in ("clusterroles", "clusterrolebindings")]
    cluster += [(kind, _ADMISSION) for kind in (*_WEBHOOKS, "validatingadmissionpolicies")]
    cluster.append(("validatingadmissionpolicybindings", _ADMISSION))
    inside = [("serviceaccounts", _CORE), ("services", _CORE), ("configmaps", _CORE)]
    inside += [("deployments", "apps"), ("daemonsets", "apps")]
    inside += [("roles", rbac), ("rolebindings", rbac)]
    return (
        *(Right("create", kind, group) for kind, group in cluster),
        *(Right("create", kind, group, own) for kind, group in inside),
    )
