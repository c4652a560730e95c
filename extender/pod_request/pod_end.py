"""The comment of a Pod's job, for readers of squeue, scontrol and, once the job is over, sacct.

The comment is that of the Pod's author, to the letter, since plugins of a site may read it. Without one
it names the Pod. A placeholder that is ended from outside is CANCELLED in Slurm, for any end of its Pod,
so the comment then ends with the cause (docs/endings.md).
"""

from collections.abc import Iterator

from extender.pod_request.annotations import CONTROLS
from kubernetes_client.protocol import Manifest
from slurm_client.model import MOST_BYTES

_LONGEST = 200
SEPARATOR = "; "
_HINT = f"{SEPARATOR}scancel evicts it"
_REPLACED = "Replaced"
_REJECTED = "Pod was rejected: "
"""The prefix of a Pod's message after every rejection by a kubelet (pkg/kubelet, Kubelet.rejectPod)."""


def pod_in_words(namespace: str, name: str, cluster: str) -> str:
    """Returns words that name a Pod. `cluster` is the name of its Kubernetes cluster, "" for none."""
    of = f" of cluster {cluster}" if cluster else ""
    return f"Kubernetes Pod {namespace}/{name}{of}"


def own_comment(pod: str) -> str:
    """Returns the comment of a job while its Pod lives. `pod` names the Pod."""
    return pod + _HINT


def is_own_comment(comment: str) -> bool:
    """Returns True for a comment that `own_comment` made."""
    return comment.endswith(_HINT)


def end_in_words(manifest: Manifest) -> str:
    """Returns how a Pod ended, or why it is being deleted; nothing while it lives."""
    status = manifest.get("status") or {}
    deleting = "deletionTimestamp" in manifest["metadata"]
    phase = status.get("phase")
    if not deleting and phase not in ("Succeeded", "Failed"):
        return ""
    disrupted = next(_disruptions(status), None)
    if disrupted is not None:
        return _line(f"Pod evicted: {disrupted.get('reason')}", disrupted.get("message"))
    if deleting:
        return "Pod deleted"
    if phase == "Succeeded":
        return "Pod succeeded"
    return _line("Pod failed", status.get("reason") or ", ".join(_exit_codes(status)))


def kubelet_rejection(status: Manifest) -> str:
    """Returns the reason and the message of the kubelet that rejected the Pod, as "REASON: MESSAGE".
    Empty for any other Pod."""
    message, reason = status.get("message") or "", status.get("reason")
    if status.get("phase") != "Failed" or not reason or not message.startswith(_REJECTED):
        return ""
    return _line(reason, message.removeprefix(_REJECTED))


def _disruptions(status: Manifest) -> Iterator[Manifest]:
    """Yields the conditions that a disruption leaves on the Pod (KEP-3329)."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            yield condition


def _exit_codes(status: Manifest) -> Iterator[str]:
    """Yields words for the containers that did not succeed."""
    for container in status.get("containerStatuses") or ():
        code = ((container.get("state") or {}).get("terminated") or {}).get("exitCode")
        if code:
            yield f"{container.get('name')} exited with {code}"


def _line(*parts: str | None) -> str:
    """Returns the parts that are not empty, on one line. Everybody that may write a Pod's status can
    write them."""
    return " ".join(CONTROLS.sub(" ", ": ".join(filter(None, parts))).split())[:_LONGEST]


def replaced_in_words(cause: str, comment: str | None) -> str:
    """Returns the comment of a job that is cancelled for its Pod to get another."""
    return after_words(f"{_REPLACED}: {cause}", comment)


def is_replaced(comment: str) -> bool:
    """Tells whether a job's comment says that it was cancelled for its Pod to get another. An author
    that writes this gets another job instead of an eviction."""
    return comment.startswith(_REPLACED)


def after_words(words: str, comment: str | None) -> str:
    """Returns a job's comment with words before it, as much of the comment as Slurm takes besides."""
    comment = (comment or "").removesuffix(_HINT)
    whole = f"{words}{SEPARATOR}{comment}" if comment else words
    return whole.encode()[:MOST_BYTES].decode(errors="ignore")


def with_words(comment: str | None, words: str) -> str:
    """Returns a job's comment, to the letter, and as much of the words as Slurm takes besides; the words
    once. A comment that has words about the Pod's end does not say what scancel does."""
    comment = (comment or "").removesuffix(_HINT)
    if comment and comment.endswith(words):
        return comment
    own = f"{comment}{SEPARATOR}" if comment else ""
    room = MOST_BYTES - len(own.encode())
    kept = words.encode()[: max(0, room)].decode(errors="ignore")
    return own + kept if kept else comment
