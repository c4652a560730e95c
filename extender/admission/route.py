"""/mutate: a Pod that asks for Slurm gets our scheduler, our gate and its first attempt's number.

What can never run is refused here, at `kubectl apply`, with every problem at once. Nothing is looked up:
admission works while Slurm or the rest of the extender is down.
Wire format: admission.k8s.io/v1 AdmissionReview; the patch is a JSON Patch (RFC 6902).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict

from extender.placement.workload import ATTEMPT, DOMAIN, GATE, Dialect, read_request
from extender.wire import PodManifest, Verb

Manifest = Mapping[str, Any]


class AdmissionRequest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    uid: str
    namespace: str = ""
    object: PodManifest


class AdmissionReview(BaseModel):
    model_config = ConfigDict(extra="ignore")

    request: AdmissionRequest


def patch_of(pod: Manifest, dialect: Dialect) -> list[dict[str, Any]]:
    """Returns the JSON Patch that makes a Pod wait for Slurm."""
    gates = [gate for gate in pod["spec"].get("schedulingGates") or () if gate["name"] != GATE]
    return [
        _add("/spec/schedulerName", dialect.scheduler_name),
        _add("/spec/schedulingGates", [*gates, {"name": GATE}]),
        _add("/metadata/annotations", _without_ours(pod) | {ATTEMPT: "1"}),
    ]


def _without_ours(pod: Manifest) -> dict[str, str]:
    """Annotations under our own domain are the extender's to write: those a user brought are dropped."""
    annotations = pod["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if not name.startswith(DOMAIN)}


def review(request: AdmissionRequest, dialect: Dialect) -> dict[str, Any]:
    """Returns the AdmissionResponse to a Pod's creation."""
    pod = request.object
    pod["metadata"].setdefault("namespace", request.namespace)
    if not dialect.manages(pod):
        return {"uid": request.uid, "allowed": True}
    if pod["spec"].get("nodeName"):  # bound already, by whoever created it
        return _allowed(request, [_add("/metadata/annotations", _without_ours(pod))])
    problems = read_request(pod, dialect).problems
    if problems:
        message = "Slurm cannot run this Pod: " + "; ".join(problems)
        status = {"code": 422, "reason": "Invalid", "message": message}
        return {"uid": request.uid, "allowed": False, "status": status}
    return _allowed(request, patch_of(pod, dialect))


def _allowed(request: AdmissionRequest, patch: list[dict[str, Any]]) -> dict[str, Any]:
    encoded = b64encode(orjson.dumps(patch)).decode()
    return {"uid": request.uid, "allowed": True, "patchType": "JSONPatch", "patch": encoded}


def verb(dialect: Dialect) -> Verb:
    """Returns the verb."""

    async def mutate(body: bytes) -> dict[str, Any]:
        asked = AdmissionReview.model_validate_json(body)
        response = review(asked.request, dialect)
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}

    return mutate


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}
