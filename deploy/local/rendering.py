"""Renders the templates of configuration files and manifests."""

from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

_TEMPLATES: Final = Environment(
    loader=PackageLoader("deploy.local"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701 - configuration files, not HTML
)


def render(template: str, **values: Any) -> str:
    return _TEMPLATES.get_template(template).render(**values)


def source(template: str) -> str:
    """Returns a template's text unrendered, with its braces."""
    assert _TEMPLATES.loader is not None
    return _TEMPLATES.loader.get_source(_TEMPLATES, template)[0]
