"""The type of a Pod's manifest in the calls of kube-scheduler."""

from typing import Annotated, Any

from pydantic import AfterValidator

from wellknown.quoting import quoted


def _is_a_pod(manifest: dict[str, Any]) -> dict[str, Any]:
    """Checks that the manifest has the two parts of every Pod. The API server has validated everything
    else."""
    for part in ("metadata", "spec"):
        if not isinstance(manifest.get(part), dict):
            raise ValueError(f"a Pod has an object {quoted(part)}")  # noqa: TRY004 -- pydantic's word
    return manifest


PodManifest = Annotated[dict[str, Any], AfterValidator(_is_a_pod)]
