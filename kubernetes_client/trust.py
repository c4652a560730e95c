"""The patch that adds a CA to the trusted CAs of a configuration's webhooks."""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any

from kubernetes_client.protocol import Manifest

_END = b"-----END CERTIFICATE-----\n"


def trusting(webhooks: Iterable[Manifest], ca: bytes) -> dict[str, Any] | None:
    """Returns the strategic merge patch that makes webhooks trust a CA (one certificate, PEM) and the
    previous CA. Returns None if all webhooks already trust the CA."""
    bundles = {one["name"]: b64decode(one["clientConfig"].get("caBundle") or "") for one in webhooks}
    if all(ca in bundle for bundle in bundles.values()):
        return None
    bundled = {name: {"caBundle": _bundle(ca, before)} for name, before in bundles.items()}
    return {"webhooks": [{"name": name, "clientConfig": config} for name, config in bundled.items()]}


def _bundle(ca: bytes, before: bytes) -> str:
    """Returns a bundle with a CA and the first of the previous CAs."""
    first, found, _ = before.partition(_END)
    kept = first + found if found and first + found != ca else b""
    return b64encode(ca + kept).decode()
