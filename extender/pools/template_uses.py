"""Lists the uses of a pool's template. A use is an image, a Secret (including a pull Secret), a host
path, a kind of volume, or a namespace of the host. The admission policy for slurmd Pods allows only the
uses of the Pod's template. This module is pure."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kubernetes_client.protocol import Manifest
from wellknown.names import POOL
from wellknown.slurmd_pod import AGENTS_FOLDER, TEMPLATES

_AGENTS = (f"hostPath={AGENTS_FOLDER}", "volume=emptyDir", "volume=hostPath", "volume=projected")
"""Uses that the node agent adds to each template."""
_OF_THE_HOST = ("hostIPC", "hostNetwork", "hostPID")


def config_map(namespace: str, revisions: Sequence[Manifest]) -> Manifest:
    """Returns the ConfigMap with the uses of each revision, with one use on each line. Omits a revision
    without a Pod template, because no Pod can be created from such a revision."""
    data = dict[str, str]()
    for each in revisions:
        if POOL in (each["metadata"].get("labels") or {}):
            with suppress(AttributeError, KeyError, TypeError):
                data[each["metadata"]["name"]] = "\n".join(uses(each["data"]["template"]))
    metadata = {"namespace": namespace, "name": TEMPLATES}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def uses(template: Mapping[str, Any]) -> Sequence[str]:
    """Returns the uses of a template, for example "image=slurmd:1", "imagePullSecret=registry",
    "secret=munge", "hostPath=/dev", "volume=csi", "hostPID=true"."""
    spec = template["spec"]
    containers = [*spec["containers"], *(spec.get("initContainers") or ())]
    found = {f"{name}=true" for name in _OF_THE_HOST if spec.get(name)}
    found |= {f"image={each.get('image', '')}" for each in containers}
    pulls = (each.get("name") for each in spec.get("imagePullSecrets") or ())
    found |= {f"imagePullSecret={name}" for name in pulls if name}
    found |= {f"secret={name}" for name in _secrets(containers, spec.get("volumes") or ())}
    for volume in spec.get("volumes") or ():
        found |= {f"volume={kind}" for kind in volume if kind != "name"}
        if path := (volume.get("hostPath") or {}).get("path"):
            found.add(f"hostPath={path}")
    return sorted(found | {*_AGENTS})


def _secrets(containers: Sequence[Manifest], volumes: Sequence[Manifest]) -> Iterator[str]:
    """Yields the names of the Secrets that containers and drivers of volumes can read."""
    all_keys = [source for each in containers for source in each.get("envFrom") or ()]
    references = [source.get("secretRef") for source in all_keys]
    values = [value.get("valueFrom") or {} for each in containers for value in each.get("env") or ()]
    references += [value.get("secretKeyRef") for value in values]
    for volume in volumes:
        sources = [source for source in volume.values() if isinstance(source, dict)]
        references += [{"name": source.get("secretName")} for source in sources]
        references += [source.get("secretRef") for source in sources]
        references += [source.get("nodePublishSecretRef") for source in sources]
        projected = (volume.get("projected") or {}).get("sources") or ()
        references += [source.get("secret") for source in projected]
    yield from (each["name"] for each in references if each and each.get("name"))
