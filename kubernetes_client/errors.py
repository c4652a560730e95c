"""The errors of calls to kube-apiserver, sorted by what the caller should do next."""

from typing import Final

import orjson

OUTAGE: Final = "Kubernetes"
"""The name of an outage of kube-apiserver."""
_OF_WHAT_WAS_ASKED: Final = frozenset({500})
"""An admission webhook that does not answer fails the calls that it has to judge, and no others."""


class KubernetesError(Exception):
    """A call to kube-apiserver did not do what was asked; `status` is HTTP's, 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {status})" if status else message)
        self.status = status
        self.message = message

    @property
    def common_trouble(self) -> str | None:
        """The name of the outage that this error is part of: every call gets this answer. None where
        the error is about one call alone."""
        return None


class NoCredentials(Exception):
    """There is no kubeconfig and no service account: a person must say which to use."""


class Conflict(KubernetesError):
    """The object has changed since it was read: read it again."""


class NotFound(KubernetesError):
    """The object does not exist."""


class Rejected(KubernetesError):
    """kube-apiserver will not do this: the request or our permissions are wrong."""


class Unavailable(KubernetesError):
    """kube-apiserver did not answer, or is too busy: the call may have been carried out; repeat it."""

    @property
    def common_trouble(self) -> str | None:
        return None if self.status in _OF_WHAT_WAS_ASKED else OUTAGE


class Expired(KubernetesError):
    """The resourceVersion is too old to be watched from: list again."""


def error_of(status: int, message: str) -> KubernetesError:
    """Returns the error that an HTTP status of kube-apiserver stands for."""
    classes = {404: NotFound, 409: Conflict, 410: Expired, 429: Unavailable}
    kind = classes.get(status, Unavailable if status >= 500 else Rejected)
    if status == 422 and "metadata.uid" in message:  # another object has the name by now
        kind = Conflict
    return kind(status, message)


def message_of(body: bytes) -> str:
    """Returns the message of a Status, or the beginning of any other body."""
    try:
        return str(orjson.loads(body)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode(errors="replace") or "no answer"
