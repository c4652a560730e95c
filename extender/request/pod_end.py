"""How a Pod ended, in words for whoever looks at its job: in squeue, or in sacct once it is over.

A placeholder that is ended from outside is CANCELLED in Slurm, whatever became of its Pod. The words are
left in its comment, after those of the Pod's author (docs/endings.md).
"""

from __future__ import annotations

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
    """Whoever disrupts a Pod leaves this condition on it (KEP-3329)."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            yield condition


def _exit_codes(status: Manifest) -> Iterator[str]:
    """Of the containers that did not succeed."""
    for container in status.get("containerStatuses") or ():
        code = ((container.get("state") or {}).get("terminated") or {}).get("exitCode")
        if code:
            yield f"{container.get('name')} exited with {code}"


def _line(*parts: str | None) -> str:
    """The parts that there are, on one line. Whoever may write a Pod's status wrote them."""
    return " ".join(CONTROLS.sub(" ", ": ".join(filter(None, parts))).split())[:_LONGEST]


def replaced_in_words(cause: str, comment: str | None) -> str:
    """Returns the comment of a job that is cancelled for its Pod to get another."""
    return after_words(f"{_REPLACED}: {cause}", comment)


def is_replaced(comment: str) -> bool:
    """Tells whether a job says that it was cancelled for its Pod to get another. Who writes that himself
    gets another instead of an eviction."""
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
