"""The strategic merge patches used by this project."""

from typing import Any, Final

from kubernetes_client.protocol import Manifest

_MERGE_KEYS: Final = {"conditions": "type", "schedulingGates": "name", "webhooks": "name"}
"""Lists whose elements are merged by a field (`patchMergeKey` in k8s.io/api)."""
_ALWAYS: Final = ("metadata", "spec", "status")
_EMPTY: Final[tuple[Any, ...]] = (None, {}, [])


def merged(before: Manifest, patch: Manifest) -> dict[str, Any]:
    """Returns an object after a strategic merge patch. Null deletes a field, and an empty map or list
    counts as no field (`omitempty` in k8s.io/api). The result shares parts with both arguments."""
    result = dict(before)
    for key, value in patch.items():
        field = None if value is None else _field(key, before.get(key), value)
        if field in _EMPTY and key not in _ALWAYS:
            result.pop(key, None)
        else:
            result[key] = field
    return result


def _field(key: str, before: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return merged(before or {}, value)
    if key in _MERGE_KEYS:
        return _merged_list(before or (), value, _MERGE_KEYS[key])
    return value


def _merged_list(before: Any, patch: Any, key: str) -> list[Any]:
    elements = {element[key]: element for element in before}
    for element in patch:
        if element.get("$patch") == "delete":
            elements.pop(element[key], None)
        else:
            elements[element[key]] = merged(elements.get(element[key], {}), element)
    return list(elements.values())
