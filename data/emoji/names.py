"""Reads the names and keywords of emoji in about 120 languages from Unicode CLDR's annotations (UTS #35, part 2).

CLDR gives each emoji one short name (`tts`) and a list of keywords (`default`), in one package for base emoji and in
another for sequences ("derived"). The benchmark uses names that were written in the language itself. It therefore
leaves out

- regional locales (`en-GB`, `es-MX`, `pt-PT`), which list differences and inherit everything else;
- locales that name fewer than half of the concepts.
"""

import json
import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ...configuration.languages import normalize_language
from ..npm import read_package
from .concepts import concept_id

_LANGUAGE_AND_SCRIPT = re.compile(r"[a-z]{2,3}(-[A-Z][a-z]{3})?")


class Annotation(NamedTuple):
    """The name and the keywords of an emoji in one language."""

    name: str
    keywords: list[str]


def read_annotations(
    tarballs: Collection[Path], concept_ids: Collection[str] | None = None
) -> dict[str, dict[str, Annotation]]:
    """Reads the annotations of all languages that name at least half of the concepts; of all languages without these.

    Args:
        tarballs: CLDR's npm packages of annotations and derived annotations.
        concept_ids: the concepts, as `concept_id` writes them.

    Returns:
        Language -> concept id -> annotation, sorted by language tag.
    """
    languages: dict[str, dict[str, Annotation]] = {}
    for tarball in tarballs:
        for path, content in read_package(tarball, _belongs_to_a_language):
            entries = _entries(content)
            if concept_ids is not None:
                entries = {key: entry for key, entry in entries.items() if key in concept_ids}
            languages.setdefault(normalize_language(path.parent.name), {}).update(entries)
    least = 0 if concept_ids is None else len(concept_ids)
    return {tag: languages[tag] for tag in sorted(languages) if 2 * len(languages[tag]) >= least}


def _belongs_to_a_language(path: PurePosixPath) -> bool:
    return path.name == "annotations.json" and bool(_LANGUAGE_AND_SCRIPT.fullmatch(path.parent.name))


def _entries(content: bytes) -> dict[str, Annotation]:
    """Concept id -> annotation, from one locale's file."""
    (body,) = json.loads(content).values()  # its one key is "annotations" or "annotationsDerived"
    return {
        concept_id(emoji): Annotation(entry["tts"][0].strip(), entry.get("default", []))
        for emoji, entry in body.get("annotations", {}).items()
        if entry.get("tts")
    }
