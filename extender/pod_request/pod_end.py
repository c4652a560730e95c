"""The comment of a Pod's job, for readers of squeue, scontrol and sacct.

A comment of the Pod's author stays as written, since plugins of a site may read the comment. Otherwise
the comment names the Pod. Slurm calls each ended placeholder CANCELLED, so the comment then ends with
the cause (docs/concepts/endings.md).
"""

from extender.pod_request.annotations import CONTROLS
from kubernetes_client.protocol import Manifest
from slurm_client.model import MOST_BYTES

_LONGEST = 200
SEPARATOR = "; "
_HINT = f"{SEPARATOR}scancel evicts it"
_REPLACED = "Replaced"
_REJECTED = "Pod was rejected: "  # so a kubelet's message begins (pkg/kubelet, Kubelet.rejectPod)


def pod_in_words(namespace: str, name: str, cluster: str) -> str:
    """Returns the name of a Pod for people. `cluster` is the name of the Kubernetes cluster, or ""."""
    of = f" of cluster {cluster}" if cluster else ""
    return f"Kubernetes Pod {namespace}/{name}{of}"


def own_comment(pod: str) -> str:
    """Returns the comment of a job while the Pod lives. `pod` is from `pod_in_words`."""
    return pod + _HINT


def is_own_comment(comment: str) -> bool:
    """Returns True for a comment that `own_comment` made."""
    return comment.endswith(_HINT)


def end_in_words(manifest: Manifest) -> str:
    """Returns how a Pod ended, or why the Pod is being deleted; empty while the Pod lives."""
    status = manifest.get("status") or {}
    deleting = "deletionTimestamp" in manifest["metadata"]
    phase = status.get("phase")
    if not deleting and phase not in ("Succeeded", "Failed"):
        return ""
    for each in status.get("conditions") or ():  # KEP-3329
        if each.get("type") == "DisruptionTarget" and each.get("status") == "True":
            return _line(f"Pod evicted: {each.get('reason')}", each.get("message"))
    if deleting:
        return "Pod deleted"
    if phase == "Succeeded":
        return "Pod succeeded"
    return _line("Pod failed", status.get("reason") or _exit_codes(status))


def is_ended_by_pod_gc(status: Manifest) -> bool:
    """Returns True if the garbage collector of Pods set the phase: the collector ends the Pods of a
    missing Node, while their containers may run (pkg/controller/podgc)."""
    return any(
        (each.get("type"), each.get("status"), each.get("reason"))
        == ("DisruptionTarget", "True", "DeletionByPodGC")
        for each in status.get("conditions") or ()
    )


def kubelet_rejection(status: Manifest) -> str:
    """Returns "REASON: MESSAGE" of the kubelet that rejected the Pod; empty for any other Pod."""
    message, reason = status.get("message") or "", status.get("reason")
    if status.get("phase") != "Failed" or not reason or not message.startswith(_REJECTED):
        return ""
    return _line(reason, message.removeprefix(_REJECTED))


def _exit_codes(status: Manifest) -> str:
    failed = []
    for container in status.get("containerStatuses") or ():
        code = ((container.get("state") or {}).get("terminated") or {}).get("exitCode")
        failed += [f"{container.get('name')} exited with {code}"] if code else []
    return ", ".join(failed)


def _line(*parts: str | None) -> str:
    """Returns the parts on one short line: anybody who may write a Pod's status may write a part."""
    return " ".join(CONTROLS.sub(" ", ": ".join(filter(None, parts))).split())[:_LONGEST]


def replaced_in_words(cause: str, comment: str | None) -> str:
    """Returns the comment of a job that the extender cancels to submit another for the Pod."""
    return after_words(f"{_REPLACED}: {cause}", comment)


def is_replaced(comment: str) -> bool:
    """Returns True for a comment from `replaced_in_words`. An author who writes such a comment gets
    another job instead of an eviction."""
    return comment.startswith(_REPLACED)


def after_words(words: str, comment: str | None) -> str:
    """Returns a text and a job's comment, cut at the end to the bytes that Slurm accepts."""
    comment = (comment or "").removesuffix(_HINT)
    whole = f"{words}{SEPARATOR}{comment}" if comment else words
    return whole.encode()[:MOST_BYTES].decode(errors="ignore")


def with_words(comment: str | None, words: str) -> str:
    """Returns a job's comment as written, and as much of the text as Slurm accepts. An
    equal text is not repeated. The hint about scancel is removed."""
    comment = (comment or "").removesuffix(_HINT)
    if comment and comment.endswith(words):
        return comment
    own = f"{comment}{SEPARATOR}" if comment else ""
    room = MOST_BYTES - len(own.encode())
    kept = words.encode()[: max(0, room)].decode(errors="ignore")
    return own + kept if kept else comment
