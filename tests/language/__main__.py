"""`python -m tests.language PATH...`: the measure of each file or folder, and its worst sentences."""

import sys
from pathlib import Path

from tests.language.measure import Measure, worst
from tests.language.prose import sentences_of

_SUFFIXES = (".md", ".py", ".yaml", ".txt")


def main(paths: list[str]) -> int:
    failed = 0
    for path in map(Path, paths):
        files = (
            sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES)
            if path.is_dir()
            else [path]
        )
        for file in files:
            sentences = sentences_of(file)
            found = Measure.of(sentences)
            told = f"{file}: {found.words} words, {found.pronouns:.1f} pronouns in 100"
            print("; ".join([told, *found.excess]))  # noqa: T201
            for sentence in worst(sentences) if found.excess else ():
                print(f"    {' '.join(sentence.split())}")  # noqa: T201
            failed += bool(found.excess)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
