"""Reads a user's YAML file into a model, and reports problems with their lines.

The models (pydantic) are the schema of the file. Numbers must be plain decimals, and a key may occur
only once. The message about an unknown field lists the known fields.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_INTEGER = "tag:yaml.org,2002:int"
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
"""Plain decimal numbers. YAML 1.1 also has other forms: 010 is 8, 1_0 is 10, and 1:30 is 90."""
_Place = tuple[int | str, ...]
_SHOWN = 80
_WORDS = {
    "missing": "is missing",
    "string_type": "a text is needed; quote values that YAML reads as another type",
    "list_type": "a list is needed, like [a, b]",
    "too_short": "must not be empty",
}

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a file: the line (from 1; 0 for the whole file), the field, and the cause."""

    line: int
    field: str
    why: str


class WrongFile(Exception):
    """The error for an unreadable file; `lines` has every problem in the form of a compiler's errors."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda one: one.line))
        self.lines = tuple(_in_words(path, one) for one in self.problems)
        super().__init__("; ".join(self.lines))


def read(path: Path, kind: type[_Model], least: str) -> _Model:
    """Returns the content of a file. `least` is the shortest valid file, for messages. Raises WrongFile
    with all problems."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise WrongFile(path, [Problem(0, "", f"cannot be read: {cause}")]) from error
    document = _Document(text, kind, least)
    model = document.read()
    if model is None or document.problems:
        raise WrongFile(path, document.problems)
    return model


def _in_words(path: Path, problem: Problem) -> str:
    place = f"{path}:{problem.line}" if problem.line else str(path)
    return ": ".join(part for part in (place, problem.field, problem.why) if part)


class _Document(Generic[_Model]):
    """A file's text, the line of each part, and the problems."""

    def __init__(self, text: str, kind: type[_Model], least: str) -> None:
        self.problems: list[Problem] = []
        self._text = text
        self._kind = kind
        self._least = least
        self._lines: dict[_Place, int] = {(): 1}
        self._seen: set[int] = set()

    def read(self) -> _Model | None:
        """Returns the content of the text. If the text has another format, notes the problems, and
        returns None."""
        try:
            loader = yaml.SafeLoader(self._text)
            root = loader.get_single_node()
            if root is None:
                self._wrong(0, (), f"is empty: the shortest valid file is `{self._least}`")
                return None
            self._note(root)
            return self._kind.model_validate(loader.construct_document(root))
        except ValidationError as error:
            for each in error.errors():
                self._wrong(self._line(each["loc"]), each["loc"], _why(each, self._kind))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._wrong(mark.line + 1 if mark else 0, (), f"not YAML: {error.problem}")
        except Exception as error:  # noqa: BLE001 -- PyYAML raises Python's errors for odd values
            self._wrong(0, (), f"not YAML: {error}")
        return None

    def _wrong(self, line: int, place: _Place, why: str) -> None:
        self.problems.append(Problem(line, _path(place), why))

    def _line(self, place: _Place) -> int:
        """Returns the line of a field. For a missing field, returns the line of the enclosing
        mapping."""
        known = (place[:length] for length in range(len(place), -1, -1))
        return next(self._lines[one] for one in known if one in self._lines)

    def _note(self, node: yaml.Node, place: _Place = ()) -> None:
        """Notes the lines of a part and of its children. A part repeated by an alias keeps the
        first line."""
        self._lines.setdefault(place, node.start_mark.line + 1)
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for index, each in enumerate(node.value):
                self._note(each, (*place, index))
        elif node.tag == _INTEGER and not _DECIMAL.fullmatch(node.value):
            self._wrong(node.start_mark.line + 1, place, f"{node.value} is not a plain decimal number")
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._note_field(key, value, (*place, str(key.value)))

    def _note_field(self, key: yaml.Node, value: yaml.Node, place: _Place) -> None:
        """Notes the lines of a field. Notes a repeated key as a problem, because YAML readers take the
        last value without an error."""
        line = key.start_mark.line + 1
        if place in self._lines:
            self._wrong(line, place, f"is a repeated key, first in line {self._lines[place]}")
            return
        self._lines[place] = line
        self._note(value, place)


def _path(place: _Place) -> str:
    """Returns a path as Kubernetes writes paths, for example rules[0].allow.users[1]."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")


def _why(error: ErrorDetails, kind: type[BaseModel]) -> str:
    problem, place = error["type"], error["loc"]
    match problem:
        case "extra_forbidden":
            return f"is not a field; known fields: {_fields(kind, place[:-1])}"
        case "model_type":
            return f"must be a mapping; fields: {_fields(kind, place)}"
        case "string_pattern_mismatch":
            return f'"{str(error["input"])[:_SHOWN]}" does not match {error["ctx"]["pattern"]}'
        case "literal_error":
            return f"must be {str(error['ctx']['expected']).replace(chr(39), '')}"
    return _WORDS.get(problem) or error["msg"].removeprefix("Value error, ")


def _fields(kind: Any, place: _Place) -> str:
    """Returns the fields in a place of a model."""
    for part in place:
        fields = {one.alias or name: one.annotation for name, one in kind.model_fields.items()}
        kind = _model_in(fields.get(str(part))) if isinstance(part, str) else kind
    return ", ".join(one.alias or name for name, one in kind.model_fields.items())


def _model_in(annotation: Any) -> Any:
    """Returns the model in a field's annotation, like `list[Rule]` or `Rule | None`."""
    if get_origin(annotation) in (list, tuple, Mapping, dict, Annotated, Union, UnionType):
        return next(filter(None, map(_model_in, get_args(annotation))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
