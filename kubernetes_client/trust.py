"""The patch that adds an authority to those that the webhooks of a configuration trust."""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any

from kubernetes_client.protocol import Manifest

_END = b"-----END CERTIFICATE-----\n"


def trusting(webhooks: Iterable[Manifest], authority: bytes) -> dict[str, Any] | None:
    """Returns the strategic merge patch that has webhooks trust an authority (one certificate, PEM) and
    the one before; None where all trust it."""
    bundles = {one["name"]: b64decode(one["clientConfig"].get("caBundle") or "") for one in webhooks}
    if all(authority in bundle for bundle in bundles.values()):
        return None
    patched = [
        {"name": name, "clientConfig": {"caBundle": _bundle(authority, before)}}
        for name, before in bundles.items()
    ]
    return {"webhooks": patched}


def _bundle(authority: bytes, before: bytes) -> str:
    """Returns an authority, and the first authority that was trusted before."""
    first, found, _ = before.partition(_END)
    kept = first + found if found and first + found != authority else b""
    return b64encode(authority + kept).decode()
