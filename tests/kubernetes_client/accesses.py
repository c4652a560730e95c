"""Access data for kube-apiservers in tests, which do not authenticate their callers."""

import ssl

from kubernetes_client.access import Access, Headers


async def nobody() -> dict[str, str]:
    return {}


def access_of(url: str, headers: Headers = nobody) -> Access:
    return Access(url, ssl.create_default_context(), headers)
