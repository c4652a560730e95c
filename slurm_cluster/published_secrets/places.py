"""The destinations of contents, as given on the command line. A destination is a key of a Secret."""

from pathlib import Path
from typing import NamedTuple, Self

from wellknown.quoting import quoted


class Place(NamedTuple):
    """A key of a Secret."""

    namespace: str
    secret: str
    key: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses NAMESPACE/SECRET/KEY. Raises ValueError."""
        parts = text.split("/")
        if len(parts) != len(cls._fields) or not all(parts):
            raise ValueError(f"{quoted(text)} is not NAMESPACE/SECRET/KEY")
        return cls(*parts)


class Copy(NamedTuple):
    """A file and its destination. If the file is missing, the key is removed from the Secret."""

    place: Place
    file: Path

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses NAMESPACE/SECRET/KEY=PATH. Raises ValueError."""
        place, _, file = text.partition("=")
        if not file:
            raise ValueError(f"{quoted(text)} is not NAMESPACE/SECRET/KEY=PATH")
        return cls(Place.parse(place), Path(file))
