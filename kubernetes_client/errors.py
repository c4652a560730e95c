"""The errors of calls to kube-apiserver, sorted by the caller's next step."""

from typing import Final

import orjson

OUTAGE: Final = "Kubernetes"
"""The name of an outage of kube-apiserver."""


class KubernetesError(Exception):
    """A failed call to kube-apiserver; `status` is the HTTP status, 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {status})" if status else message)
        self.status = status
        self.message = message

    @property
    def common_problem(self) -> str | None:
        """Name of the outage in which every call gets this error; None for an error of one call."""
        return None


class NoCredentials(Exception):
    """Neither a kubeconfig nor a service account exists, so a person must configure credentials."""


class Conflict(KubernetesError):
    """The object has changed since it was read: read it again."""


class NotFound(KubernetesError):
    """The object does not exist."""


class Rejected(KubernetesError):
    """kube-apiserver rejects the call: the request or the program's permissions are wrong."""


class Unavailable(KubernetesError):
    """kube-apiserver did not answer, or is too busy. The call may have succeeded: repeat the call."""

    @property
    def common_problem(self) -> str | None:
        # 500: an admission webhook does not answer. Only calls that kube-apiserver passes to the webhook
        # fail.
        return None if self.status == 500 else OUTAGE


class Expired(KubernetesError):
    """The resourceVersion is too old for a watch: list again."""


def error_of(status: int, message: str) -> KubernetesError:
    """Returns the error for an HTTP status of kube-apiserver."""
    classes = {404: NotFound, 409: Conflict, 410: Expired, 429: Unavailable}
    kind = classes.get(status, Unavailable if status >= 500 else Rejected)
    if status == 422 and "metadata.uid" in message:  # another object has the name
        kind = Conflict
    return kind(status, message)


def message_of(body: bytes) -> str:
    """Returns the message of a Status, or the beginning of any other body."""
    try:
        return str(orjson.loads(body)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode(errors="replace") or "no answer"
