"""The natural order of names, in which train-2 comes before train-10."""

import re
from typing import Final

_DIGITS_OF_NUMBER: Final = 18
_NUMBER: Final = re.compile(r"[0-9]+")


def natural_key(name: str) -> str:
    """Returns the key that sorts names in natural order."""
    return _NUMBER.sub(lambda number: number[0].zfill(_DIGITS_OF_NUMBER), name)
