"""What went wrong with kube-apiserver, sorted by what the caller should do next."""

from __future__ import annotations

from typing import Final

import orjson

OUTAGE: Final = "Kubernetes"
"""What an outage of kube-apiserver is called."""
_OF_WHAT_WAS_ASKED: Final = frozenset({500})
"""Somebody's admission webhook that does not answer fails what it is asked about, and nothing else."""


class KubernetesError(Exception):
    """A call to kube-apiserver did not do what was asked; `status` is HTTP's, 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {status})" if status else message)
        self.status = status
        self.message = message

    @property
    def common_trouble(self) -> str | None:
        """The trouble of the whole system that it is part of: everybody is answered so, whatever they
        ask. None where it is about what was asked."""
        return None


class NoCredentials(Exception):
    """There is no kubeconfig and no service account to be had: a person must say which to use."""


class Conflict(KubernetesError):
    """The object is not as it was seen: look again."""


class NotFound(KubernetesError):
    """The object does not exist."""


class Rejected(KubernetesError):
    """kube-apiserver will not do this: the request or our permissions are wrong."""


class Unavailable(KubernetesError):
    """kube-apiserver did not answer, or is too busy: it may have been carried out; ask again."""

    @property
    def common_trouble(self) -> str | None:
        return None if self.status in _OF_WHAT_WAS_ASKED else OUTAGE


class Expired(KubernetesError):
    """The resourceVersion is too old to be watched from: list again."""


def error_of(status: int, message: str) -> KubernetesError:
    """Returns the error that an HTTP status of kube-apiserver's is."""
    classes = {404: NotFound, 409: Conflict, 410: Expired, 429: Unavailable}
    kind = classes.get(status, Unavailable if status >= 500 else Rejected)
    if status == 422 and "metadata.uid" in message:  # another object has the name by now
        kind = Conflict
    return kind(status, message)


def message_of(body: bytes) -> str:
    """Returns the words of a Status, or the beginning of whatever the body is."""
    try:
        return str(orjson.loads(body)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode(errors="replace") or "no answer"
