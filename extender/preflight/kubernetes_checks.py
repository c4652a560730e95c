"""Checks of kube-apiserver: release, API, the account, and installed objects."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from extender.kube_scheduler.configuration import problems, unsafe_preemption
from extender.preflight.facts import RELEASE, Answer, Called, Facts, NotKnown, Unread, Webhook, known
from extender.preflight.result import Check, Finding, failed, passed, some, warned
from kubernetes_client.protocol import Manifest
from wellknown.names import RELEASE_NAMESPACE
from wellknown.quoting import quoted

OLDEST: Final = (1, 31)
NEWEST: Final = (1, 37)
"""The oldest and the newest tested release of Kubernetes."""
_NODE_IN_TOKEN_SINCE: Final = (1, 32)
"""Release since which ServiceAccountTokenPodNodeInfo cannot be turned off."""
_NODE_IN_TOKEN: Final = "authentication.kubernetes.io/node-name"  # noqa: S105 -- no password
_ACCOUNT: Final = "system:serviceaccount:"
_POLICIES: Final = "validatingadmissionpolicies"
_GATES_PODS: Final = "pods.slurm-extender.io"
"""The webhook that adds the extender's scheduling gate to Pods."""
_GUARDS_ANNOTATIONS: Final = "-bookkeeping"
_GUARDS_SIZE: Final = "-resize"
"""Endings of the names of the admission policies."""
_NRI_IS_ON: Final = re.compile(r"(containerd://[2-9]\.|cri-o://(1\.(2[6-9]|[3-9]\d)|[2-9]))")
"""Container runtimes with NRI on by default."""
_NRI_IS_OFF: Final = re.compile(r"(containerd://1\.|docker://)")


def _number(release: str) -> tuple[int, int]:
    found = re.match(r"v(\d+)\.(\d+)", release)
    if found is None:
        raise NotKnown(f"{quoted(release)} is no release of Kubernetes")
    return int(found[1]), int(found[2])


def _text(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]}"


def release(facts: Facts) -> Finding:
    version = facts.kubernetes.release
    if isinstance(version, Unread):
        return failed(version.why, "Give --kubeconfig and --context, or run preflight in a Pod.")
    number = _number(version)
    if number < OLDEST:
        return failed(f"kube-apiserver is {version}; the oldest supported is {_text(OLDEST)}")
    if number > NEWEST:
        return warned(f"kube-apiserver is {version}; the newest tested is {_text(NEWEST)}")
    return passed(f"kube-apiserver is {version}")


def admission_policies(facts: Facts) -> Finding:
    if _POLICIES in known(facts.kubernetes.admission_kinds):
        return passed("admissionregistration.k8s.io/v1 has ValidatingAdmissionPolicy")
    return failed("admissionregistration.k8s.io/v1 has no ValidatingAdmissionPolicy")


def node_in_token(facts: Facts) -> Finding:
    number = _number(known(facts.kubernetes.release))
    if number >= _NODE_IN_TOKEN_SINCE:
        return passed(f"always so since Kubernetes {_text(_NODE_IN_TOKEN_SINCE)}")
    account = known(facts.kubernetes.account)
    if not _is_pods(account):
        raise NotKnown(f"{account.get('username')} is no Pod's account")
    if (account.get("extra") or {}).get(_NODE_IN_TOKEN):
        return passed("this Pod's token names its Node")
    return failed("this Pod's token names no Node")


def _is_pods(account: Manifest) -> bool:
    return str(account.get("username")).startswith(_ACCOUNT)


def rights(facts: Facts) -> Finding:
    denied, account = known(facts.kubernetes.denied), known(facts.kubernetes.account)
    name = account.get("username")
    if not denied:
        return passed(f"{name} has all rights of the extender")
    words = f"{name} may not {some([str(right) for right in denied])}"
    return failed(words) if _is_pods(account) else warned(words)


def install_rights(facts: Facts) -> Finding:
    account = known(facts.kubernetes.account)
    if _is_pods(account):
        raise NotKnown("a Pod's account installs nothing")
    if _is_installed(facts):
        raise NotKnown("the extender is installed")
    cannot = known(facts.kubernetes.cannot_install)
    if cannot:
        return failed(f"{account.get('username')} may not {some([str(right) for right in cannot])}")
    return passed(f"{account.get('username')} may create all objects of the chart")


def _is_installed(facts: Facts) -> bool:
    return known(facts.kubernetes.lease) is not None


def webhooks(facts: Facts) -> Finding:
    _require_install(facts)
    found = [
        webhook
        for webhook, called in known(facts.kubernetes.webhooks).items()
        if webhook.name == _GATES_PODS and called.answer is not Answer.NO_SERVICE
    ]
    if not found:
        return failed(f"webhook {_GATES_PODS} is missing: Pods are created without the extender's gate")
    if not all(each.ca for each in found):
        return failed(f"webhook {_GATES_PODS} has no caBundle: kube-apiserver cannot call the webhook")
    return passed(f"webhook {_GATES_PODS} gates Pods")


def webhook_answers(facts: Facts) -> Finding:
    found = known(facts.kubernetes.webhooks)
    if not found:
        return passed("kube-apiserver has no webhook of slurm-extender")
    lost = [each for each, called in found.items() if called.answer in (Answer.NO_SERVICE, Answer.NO)]
    if lost:
        return _lost(lost, found)
    addresses = {str(each.address): each for each in found}
    unknown = [name for name, each in addresses.items() if found[each].answer is Answer.UNKNOWN]
    if unknown:
        raise NotKnown("; ".join(f"{name} {found[addresses[name]].words}" for name in unknown))
    own = ("", facts.settings.namespace)
    others = [name for name, each in addresses.items() if each.address.namespace not in own]
    if others:
        return warned(
            f"{some(others)} answers, in another namespace than {facts.settings.namespace}",
            "If you mean that installation, set SLURM_EXTENDER_NAMESPACE to its namespace. Otherwise"
            " uninstall one of both installations: a cluster has one installation.",
        )
    return passed(f"{some(list(addresses))} answers")


def _lost(lost: Sequence[Webhook], found: Mapping[Webhook, Called]) -> Finding:
    """Returns the finding for webhooks that do not answer."""
    words = "; ".join(dict.fromkeys(f"{each.address} {found[each].words}" for each in lost))
    named = list(dict.fromkeys(each.configuration for each in lost))
    fix = f"Start that installation. If the installation is deleted, `kubectl delete {' '.join(named)}`."
    if any(each.required for each in lost):
        return failed(
            f"{words}: kube-apiserver rejects Pods that ask for Slurm ({', '.join(named)})", fix
        )
    return warned(f"{words}: wrong Pod templates get no warning ({', '.join(named)})", fix)


def policies(facts: Facts) -> Finding:
    _require_install(facts)
    names = known(facts.kubernetes.policies)
    missing = [
        ending.removeprefix("-")
        for ending in (_GUARDS_ANNOTATIONS, _GUARDS_SIZE)
        if not any(name.endswith(ending) for name in names)
    ]
    if not missing:
        return passed("the admission policies exist")
    words = f"no ValidatingAdmissionPolicy whose name ends in {' and in '.join(missing)}"
    if "bookkeeping" in missing:
        return failed(
            f"{words}: all accounts that may change a Pod may write the extender's annotations"
        )
    return warned(f"{words}: a Pod may be resized beyond its job")


def one_release(facts: Facts) -> Finding:
    found, namespace = known(facts.kubernetes.releases), facts.settings.namespace
    if len(found) > 1:
        named = some([str(each) for each in found])
        return failed(f"the cluster has {len(found)} releases of slurm-extender: {named}")
    if found and found[0].namespace != namespace:
        return warned(
            f"the release of slurm-extender is {found[0]}, in another namespace than {namespace}",
            "If you mean that release, set SLURM_EXTENDER_NAMESPACE to its namespace. Otherwise"
            " uninstall that release before you install another release.",
        )
    return passed("the cluster has no other release of slurm-extender")


def _require_install(facts: Facts) -> None:
    if not _is_installed(facts):
        raise NotKnown("nothing is installed yet: the replicas' Lease is missing")


def scheduler(facts: Facts) -> Finding:
    found = problems(known(facts.scheduler), facts.settings.scheduler_name)
    return failed("; ".join(found)) if found else passed("kube-scheduler asks slurm-extender")


def preemption(facts: Facts) -> Finding:
    name = facts.settings.scheduler_name
    configuration = known(facts.scheduler)
    unsafe = unsafe_preemption(configuration, name)
    if unsafe is not None:
        return failed(f"{unsafe}: kube-scheduler would evict Pods for a Pod that Slurm has not admitted")
    profile = configuration.profile(name)
    if profile is not None and profile.preempts:
        return passed("DefaultPreemption asks slurm-extender about its victims")
    return passed(f"DefaultPreemption is off in the profile {name}")


def nri(facts: Facts) -> Finding:
    runtimes = {
        node["metadata"]["name"]: ((node.get("status") or {}).get("nodeInfo") or {}).get(
            "containerRuntimeVersion", ""
        )
        for node in known(facts.kubernetes.nodes)
    }
    off = [name for name, runtime in runtimes.items() if _NRI_IS_OFF.match(runtime)]
    if off:
        return warned(f"{some(off)}: {runtimes[off[0]]} has NRI off by default")
    on = [name for name, runtime in runtimes.items() if _NRI_IS_ON.match(runtime)]
    if not on or len(on) < len(runtimes):
        raise NotKnown("the Nodes do not report whether their container runtimes have NRI")
    return passed("the Nodes' container runtimes have NRI on by default")


KUBERNETES_CHECKS: Final = (
    Check(
        RELEASE,
        f"kube-apiserver runs Kubernetes {_text(OLDEST)} to {_text(NEWEST)}.",
        f"Upgrade Kubernetes to {_text(OLDEST)} or later. For a newer Kubernetes, look for a newer"
        " slurm-extender.",
        "`kubectl version`",
        release,
    ),
    Check(
        "admission-policies",
        "kube-apiserver serves ValidatingAdmissionPolicy as v1. A policy of this kind guards the"
        " extender's annotations.",
        "Remove `--runtime-config=admissionregistration.k8s.io/v1=false` from kube-apiserver.",
        "`kubectl api-resources --api-group=admissionregistration.k8s.io`",
        admission_policies,
    ),
    Check(
        "node-in-token",
        "The token of a Pod names the Pod's Node. With this name, the node agent's policy lets each"
        " agent write only to its own Node.",
        "Turn on kube-apiserver's feature gate ServiceAccountTokenPodNodeInfo (on by default since"
        " 1.30).",
        "Run preflight in a Pod, or check kube-apiserver's `--feature-gates`.",
        node_in_token,
    ),
    Check(
        "rights",
        "The account has the extender's rights to Pods, Nodes, Events and the Lease.",
        "Give the extender's account the chart's ClusterRole and Role. A person's account may lack some"
        " of the rights.",
        "`kubectl auth can-i --list --as=system:serviceaccount:NAMESPACE:slurm-extender`",
        rights,
    ),
    Check(
        "install-rights",
        "The account may create the chart's objects: roles, webhook configurations, policies and"
        " workloads.",
        "Install as a cluster administrator.",
        "`kubectl auth can-i create clusterroles`",
        install_rights,
    ),
    Check(
        "webhooks",
        f"After the installation, the webhook {_GATES_PODS} exists.",
        "Install the chart with its webhooks. If cert-manager issues the certificates, check that"
        " cert-manager runs.",
        "`kubectl get mutatingwebhookconfigurations`",
        webhooks,
    ),
    Check(
        "webhook-answers",
        "The extender of this installation answers at the address of each webhook of slurm-extender."
        " preflight checks the webhook configurations of all installations, including deleted"
        " installations.",
        "Start the extender's Pods, or delete the webhook configurations of a deleted installation.",
        "Run preflight with an account that may `get services/proxy`. For a URL, run `curl -k URL` on"
        " the host of kube-apiserver.",
        webhook_answers,
    ),
    Check(
        "policies",
        "After the installation, the admission policies for the extender's annotations and for the size"
        " of Pods exist.",
        "Install the chart again: the chart has the policies.",
        "`kubectl get validatingadmissionpolicies`",
        policies,
    ),
    Check(
        "one-release",
        "The cluster has one release of slurm-extender, in the namespace SLURM_EXTENDER_NAMESPACE. Two"
        " releases reject each other's changes of Pods.",
        "Uninstall all releases except one.",
        f"`kubectl get validatingadmissionpolicies -L app.kubernetes.io/instance,{RELEASE_NAMESPACE}`",
        one_release,
    ),
    Check(
        "scheduler",
        "kube-scheduler has the profile of SLURM_EXTENDER_SCHEDULER_NAME, checks all Nodes, asks"
        " slurm-extender (entries of `extenders` with a urlPrefix that ends in /scheduler), and waits"
        " 5 s or longer for answers (httpTimeout), or 30 s or longer in the entry with bindVerb.",
        "Use the chart's KubeSchedulerConfiguration, or correct the named lines.",
        "Pass kube-scheduler's file: `slurm-extender preflight --scheduler-config FILE`.",
        scheduler,
    ),
    Check(
        "preemption",
        "kube-scheduler evicts no Pod for a Pod that Slurm has not admitted. With DefaultPreemption and"
        " without a preemptVerb, kube-scheduler evicts Pods on one Node after another, because the"
        " extender keeps each freed Node closed to the waiting Pod.",
        "Disable DefaultPreemption in the profile (plugins.multiPoint.disabled), or give"
        " slurm-extender's entry `preemptVerb: preempt` and `ignorable: false`.",
        "Pass kube-scheduler's file: `slurm-extender preflight --scheduler-config FILE`.",
        preemption,
    ),
    Check(
        "nri",
        "The Nodes' container runtimes have NRI (containerd 2, CRI-O). Through NRI, the node agent gives"
        " containers the devices of their jobs.",
        "Upgrade to containerd 2, or turn NRI on in the configuration of the runtime. Without NRI, a"
        " container has all devices of a Node or none (NODE_AGENT_NRI=).",
        "On a Node: `ls /var/run/nri/nri.sock`",
        nri,
    ),
)
