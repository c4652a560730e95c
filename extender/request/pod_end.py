"""Words for how a Pod ended, for readers of its job in squeue, or in sacct once the job is over.

A placeholder that is ended from outside is CANCELLED in Slurm, for any end of its Pod. So the words are
appended to the job's comment, after the words of the Pod's author (docs/endings.md).
"""

from collections.abc import Iterator

from extender.request.annotations import CONTROLS
from kubernetes_client.protocol import Manifest
from slurm_client.model import MOST_BYTES

_LONGEST = 200
SEPARATOR = "; "
_REPLACED = "Replaced"


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
    """Returns what a job's comment is to be while it must say something: that, and as much of its
    author's as Slurm takes besides."""
    whole = f"{words}{SEPARATOR}{comment}" if comment else words
    return whole.encode()[:MOST_BYTES].decode(errors="ignore")


def with_words(comment: str | None, words: str) -> str:
    """Returns what a job's comment is to be: its author's, to the letter, and as much of the words as
    Slurm takes besides; the words once."""
    if comment and comment.endswith(words):
        return comment
    own = f"{comment}{SEPARATOR}" if comment else ""
    room = MOST_BYTES - len(own.encode())
    kept = words.encode()[: max(0, room)].decode(errors="ignore")
    return own + kept if kept else comment or ""
