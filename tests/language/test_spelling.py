"""Spelling: each word of a text is English, or a word of the project (words.txt)."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest
from spellchecker import SpellChecker

from tests.language.prose import sentences_of
from tests.language.test_language import TEXTS

_LIST: Final = Path(__file__).with_name("words.txt")
_WORD: Final = re.compile(r"(?<![\w./@:<{$=-])[A-Za-z][a-z]+(?![\w/@>}$=(-]|[.:]\w)")
"""Words without digits, signs and further capitals: names of programs and fields have these."""


@pytest.fixture(scope="module")
def english() -> SpellChecker:
    return SpellChecker()


def _unknown(sentences: Iterable[str], english: SpellChecker) -> set[str]:
    words = {word.lower() for each in sentences for word in _WORD.findall(each)}
    return set(english.unknown(words))


def test_each_word_is_english_or_listed(english: SpellChecker) -> None:
    listed = _LIST.read_text().split()
    assert listed == sorted(set(listed)), f"sort {_LIST.name}"
    found = {file: _unknown(sentences_of(file), english) for files in TEXTS.values() for file in files}
    wrong = {str(file): sorted(words - set(listed)) for file, words in found.items()}
    assert {file: words for file, words in wrong.items() if words} == {}
    assert sorted(set(listed) - set().union(*found.values())) == [], f"remove these from {_LIST.name}"


def test_a_wrong_word_is_found(english: SpellChecker) -> None:
    text = "The extender recieves a Pod: it waitt. Not slurmctld_x, and not file.recieve."
    assert _unknown([text], english) == {"recieves", "waitt"}
