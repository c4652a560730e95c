"""Values and errors in messages for people."""

_MOST_SHOWN = 60
_LATIN_1 = 0xFF


def quoted(value: object, most: int = _MOST_SHOWN) -> str:
    """Returns a value for a sentence: in double quotes, cut to `most` characters, without unprintable
    characters. Escapes characters beyond Latin-1, because a single such character makes Python store
    the whole sentence with four bytes per character."""
    text = printable(str(value)[:most])
    return f'"{text}"' if len(text) <= most else f'"{text[:most]}..."'


def words_of(error: Exception) -> str:
    """Returns the message of an error, or the class of an error without a message (TimeoutError). For an
    error of the operating system, returns the file and the system's message, without the error
    number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def printable(text: str) -> str:
    """Returns a text with escapes for quotes, backslashes, and the characters that `quoted` escapes."""
    plain = text.translate({ord('"'): '\\"', ord("\\"): "\\\\"})
    return "".join(each if _is_plain(each) else _escaped(each) for each in plain)


def _is_plain(character: str) -> bool:
    return character.isprintable() and ord(character) <= _LATIN_1


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
