"""Reads a server's OpenAPI document: chooses the API version, and finds the server's capabilities.

Each capability comes from the document itself, not from the version. No other module compares versions.
"""

from collections.abc import Mapping
from typing import Any, Final

from slurm_client.errors import NeedsOperator
from slurm_client.server import Capabilities

KNOWN: Final = ("v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42")
"""The versions that `requests` and `responses` know, newest first."""


def choose(openapi: Mapping[str, Any]) -> str:
    """Returns the newest version that both the server and this client know. Raises NeedsOperator if
    there is none."""
    offered = {path.split("/")[2] for path in openapi.get("paths") or () if path.startswith("/slurm/v")}
    for version in KNOWN:
        if version in offered:
            return version
    has = ", ".join(sorted(offered)) or "none"
    known = ", ".join(KNOWN)
    raise NeedsOperator(f"slurmrestd offers the API versions {has}; this client knows {known}")


def capabilities(openapi: Mapping[str, Any], version: str, meta: Mapping[str, Any]) -> Capabilities:
    """Returns the server's capabilities in `version`. `meta` is the part of a reply that describes the
    server."""
    paths = openapi.get("paths") or {}
    slurm = meta.get("slurm") or {}
    return Capabilities(
        api_version=version,
        release=str(slurm.get("release") or ""),
        cluster=str(slurm.get("cluster") or ""),
        external_jobs="EXTERNAL_JOB" in _job_flags(openapi, version),
        configuration=f"/slurm/{version}/conf" in paths,
        resources=f"/slurm/{version}/resources/{{job_id}}" in paths,
        default_partition="flags" in _properties(openapi, f"{version}_partition_info"),
        books=f"/slurmdb/{version}/job/{{job_id}}" in paths,
    )


def _job_flags(openapi: Mapping[str, Any], version: str) -> list[str]:
    """Returns the possible values of job_desc_msg's `flags`. The document lists the values in place
    (v0.0.43 and later) or behind a $ref."""
    flags = _properties(openapi, f"{version}_job_desc_msg").get("flags") or {}
    if reference := flags.get("$ref"):
        flags = _schema(openapi, str(reference).rpartition("/")[2])
    return list((flags.get("items") or {}).get("enum") or ())


def _properties(openapi: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _schema(openapi, name).get("properties") or {}


def _schema(openapi: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    schemas = (openapi.get("components") or {}).get("schemas") or {}
    return schemas.get(name) or {}
