"""The comment of a Pod's job, for readers of squeue, scontrol and sacct.

If the Pod's author writes a comment, the comment stays as written, because plugins of a site may read
the comment. Otherwise the comment names the Pod. Slurm shows CANCELLED for each ended job of a Pod, so
the extender adds the cause of the end to the comment (docs/concepts/endings.md).
"""

from extender.pod_request.annotations import CONTROLS
from kubernetes_client.protocol import Manifest
from slurm_client.model import MOST_BYTES

_LONGEST = 200
SEPARATOR = "; "
_HINT = f"{SEPARATOR}scancel evicts it"
_REPLACED = "Replaced"
_REJECTED = "Pod was rejected: "  # beginning of a kubelet's message (pkg/kubelet, Kubelet.rejectPod)


def pod_in_words(namespace: str, name: str, cluster: str) -> str:
    """Returns the name of a Pod in words, like "Kubernetes Pod default/chat". `cluster` is the name of
    the Kubernetes cluster, or "" to name no cluster."""
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
    """Returns True if the garbage collector of Pods set the phase. If a Node is missing, the collector
    marks the Node's Pods as ended, although their containers may still run (pkg/controller/podgc)."""
    return any(
        (each.get("type"), each.get("status"), each.get("reason"))
        == ("DisruptionTarget", "True", "DeletionByPodGC")
        for each in status.get("conditions") or ()
    )


def kubelet_rejection(status: Manifest) -> str:
    """Returns "REASON: MESSAGE" from the kubelet that rejected the Pod. Returns an empty text for any
    other Pod."""
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
    """Returns the parts on one short line, without control characters. Every user who may write a Pod's
    status may write a part."""
    return " ".join(CONTROLS.sub(" ", ": ".join(filter(None, parts))).split())[:_LONGEST]


def replaced_in_words(cause: str, comment: str | None) -> str:
    """Returns the comment of a job that the extender cancels, because the extender submits another job
    for the Pod."""
    return after_words(f"{_REPLACED}: {cause}", comment)


def is_replaced(comment: str) -> bool:
    """Returns True for a comment from `replaced_in_words`. If the author of a Pod writes such a comment,
    and the Pod's job ends, the Pod gets another job instead of an eviction."""
    return comment.startswith(_REPLACED)


def after_words(words: str, comment: str | None) -> str:
    """Returns a text, followed by a job's comment. The end is cut off if Slurm does not accept so many
    bytes."""
    comment = (comment or "").removesuffix(_HINT)
    whole = f"{words}{SEPARATOR}{comment}" if comment else words
    return whole.encode()[:MOST_BYTES].decode(errors="ignore")


def with_words(comment: str | None, words: str) -> str:
    """Returns a job's comment as written, followed by as much of the text as Slurm accepts. If the
    comment already ends with the text, the text is not repeated. The hint about scancel is removed."""
    comment = (comment or "").removesuffix(_HINT)
    if comment and comment.endswith(words):
        return comment
    own = f"{comment}{SEPARATOR}" if comment else ""
    room = MOST_BYTES - len(own.encode())
    kept = words.encode()[: max(0, room)].decode(errors="ignore")
    return own + kept if kept else comment
