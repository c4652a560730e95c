"""Rights of the extender (as in the chart's ClusterRole and Roles), and rights for an installation."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from extender.settings import Settings
from kubernetes_client.protocol import Right
from wellknown.names import LEASE
from wellknown.slurmd_pod import TEMPLATES

_ADMISSION: Final = "admissionregistration.k8s.io"
_LEASES: Final = "coordination.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_WEBHOOKS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


class _Rule(NamedTuple):
    """Several rights to objects of one kind. `verbs` are separated by spaces."""

    verbs: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""


_EVERYWHERE: Final = (
    _Rule("get list watch", "pods"),
    _Rule("create", "pods/binding"),
    _Rule("get list watch", "nodes"),
    _Rule("patch", "nodes/status"),
    _Rule("get", "namespaces", name="kube-system"),
    _Rule("list watch", "persistentvolumeclaims"),
    _Rule("list watch", "persistentvolumes"),
    _Rule("list watch", "storageclasses", "storage.k8s.io"),
    _Rule("list watch", "resourceclaims", "resource.k8s.io"),
    _Rule("get", "podgroups", "scheduling.k8s.io"),
    _Rule("get", "podgroups", "scheduling.x-k8s.io"),
    _Rule("create list watch", "events"),
    _Rule("list", "validatingadmissionpolicies", _ADMISSION),
)


def of_extender(settings: Settings) -> tuple[Right, ...]:
    """Returns the rights that the extender needs with these settings."""
    return tuple(_rights((*_EVERYWHERE, *_by_settings(settings))))


def to_pods_in_scope(settings: Settings) -> tuple[Right, ...]:
    """Returns the extender's rights to change Pods in scope."""
    return tuple(_rights(_to_pods(settings)))


def _to_pods(settings: Settings) -> Iterator[_Rule]:
    for namespace in settings.namespaces or ("",):
        yield _Rule("patch delete", "pods", namespace=namespace)
        yield _Rule("patch", "pods/status", namespace=namespace)


def _by_settings(settings: Settings) -> Iterator[_Rule]:
    own, pools, tls = settings.namespace, settings.pools_file, settings.tls_secret
    yield from _to_pods(settings)
    yield _Rule("create", "leases", _LEASES, own)
    yield _Rule("get update", "leases", _LEASES, own, LEASE)
    if settings.taint_nodes or pools is not None:
        yield _Rule("patch", "nodes")
    if pools is not None:
        beside = settings.pools_namespace
        yield _Rule("list create delete", "controllerrevisions", "apps", beside)
        yield _Rule("create", "configmaps", "", beside)
        yield _Rule("get update", "configmaps", "", beside, TEMPLATES)
    if tls is not None:
        yield _Rule("create", "secrets", "", own)
        yield _Rule("get update", "secrets", "", own, tls)
        for kind in _WEBHOOKS:
            yield _Rule("get patch", kind, _ADMISSION, name=settings.webhook_configuration)


def of_installation(settings: Settings) -> tuple[Right, ...]:
    """Returns the rights that an installation of the chart needs."""
    own = settings.namespace
    cluster = [(kind, _RBAC) for kind in ("clusterroles", "clusterrolebindings")]
    policies = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    cluster += [(kind, _ADMISSION) for kind in (*_WEBHOOKS, *policies)]
    inside = [(kind, "") for kind in ("serviceaccounts", "services", "configmaps")]
    inside += [(kind, "apps") for kind in ("deployments", "daemonsets")]
    roles = [(kind, _RBAC) for kind in ("roles", "rolebindings")]
    rules = [_Rule("create", kind, group) for kind, group in cluster]
    rules += [_Rule("create", kind, group, own) for kind, group in (*inside, *roles)]
    others = [each for each in settings.namespaces or () if each != own]
    rules += [_Rule("create", kind, group, each) for each in others for kind, group in roles]
    return tuple(_rights(rules))


def _rights(rules: Iterable[_Rule]) -> Iterator[Right]:
    for verbs, *to in rules:
        yield from (Right(verb, *to) for verb in verbs.split())
