"""The key `translate` of a recipe's data: captions of one language that are translated by machine into others. A list
translates from several languages, each time the captions that the data have, not their translations."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset, IterableDataset
from torch.utils.data import get_worker_info

from ..data.corpus.corpus import with_captions
from ..inference.translated_captions import translated_captions
from ..inference.translation import LanguagePair, Translator, TranslatorsByPair
from ..inference.translation_cache import open_translator
from ..utils.errors import BabelensError, RecipeError, SaveError
from ..utils.languages import normalize_language, normalize_languages
from .recipe_file import check_known, validate

_KEYS: dict[str, Any] = {
    "model": str | dict[str, str],
    "from": str,
    "to": list[str],
    "batch_size": int,
    "everywhere": bool,
}


@dataclass(frozen=True)
class TranslatedSource:
    """Captions of one language to translate into others.

    Args:
        models: the translation model of each language that is translated into, a folder or Hub id, or a file of
            translations.
        source: the language of the captions that are translated.
        batch_size: number of texts that are translated at a time.
        everywhere: whether images that have captions in a language also get translations into it.
    """

    models: Mapping[str, str]
    source: str
    batch_size: int = 32
    everywhere: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "TranslatedSource":
        """The source that the mapping of a recipe describes: `{model: …, from: en, to: [de, fr]}`, where `model` is
        one model of many languages, or a mapping with a model for each language in `to`.

        Raises:
            RecipeError: for a key that is unknown or missing, and a value that cannot be meant.
        """
        for key in given:
            check_known(key, _KEYS, "translate.")
        for key in ("model", "from", "to"):
            if key not in given:
                raise RecipeError(f"translate.{key} is missing")
        values = {key: validate(_KEYS[key], value, f"translate.{key}") for key, value in given.items()}
        try:
            source, targets = normalize_language(values["from"]), normalize_languages(values["to"])
            model = values["model"]
            models = (
                {normalize_language(tag): name for tag, name in model.items()}
                if isinstance(model, dict)
                else dict.fromkeys(targets, model)
            )
        except BabelensError as error:
            raise RecipeError(f"translate: {error}") from error
        if not targets or source in targets:
            raise RecipeError(f"translate.to: name other languages than {source}, from which captions are translated")
        if set(models) != set(targets):
            raise RecipeError(f"translate.model: give one model, or one for each of {', '.join(targets)}")
        if values.get("batch_size", 1) < 1:
            raise RecipeError(f"translate.batch_size must be at least 1, not {values['batch_size']}")
        options = {key: values[key] for key in ("batch_size", "everywhere") if key in values}
        return cls({tag: models[tag] for tag in targets}, source, **options)

    def __str__(self) -> str:
        """For model cards, such as `translated by machine from en into de, fr (facebook/nllb-200-distilled-600M)`."""
        names = ", ".join(dict.fromkeys(self.models.values()))
        return f"translated by machine from {self.source} into {', '.join(self.models)} ({names})"

    def apply(
        self, corpus: Dataset | IterableDataset, where: str, *, only: Collection[str] | None = None
    ) -> Dataset | IterableDataset:
        """The corpus with translations; each text is translated once for all runs. A stream is translated while it is
        read; errors of its models and texts then come at its first rows.

        Args:
            corpus: the corpus.
            where: the recipe's key of its source, for error messages.
            only: the languages that are used; others are not translated into.

        Raises:
            RecipeError: when a model cannot be loaded or does not translate these languages, or the corpus has nothing
                to translate.
            SaveError: when translations cannot be kept on disk.
        """
        targets = [tag for tag in self.models if only is None or tag in only]
        if not targets:
            return corpus
        try:
            is_stream = isinstance(corpus, IterableDataset)
            translator = _LoadedWhenRead(self, targets) if is_stream else self.translator(targets)
            options: dict[str, Any] = {"source": self.source, "targets": targets, "everywhere": self.everywhere}
            return translated_captions(corpus, translator, **options)
        except SaveError:
            raise
        except BabelensError as error:
            raise RecipeError(f"{where}.translate: {error}") from error

    def translator(self, targets: Sequence[str], device: str | None = None) -> Translator:
        """A translator into these languages, on a device, by default the accelerator; each model is loaded once."""
        by_model: dict[str, list[str]] = {}
        for target in targets:
            by_model.setdefault(self.models[target], []).append(target)
        translators: dict[LanguagePair, Translator] = {}
        for model, languages in by_model.items():
            pair = (self.source, languages[0]) if len(languages) == 1 else None
            loaded = open_translator(model, pair=pair, batch_size=self.batch_size, device=device)
            translators |= dict.fromkeys(((self.source, target) for target in languages), loaded)
        return TranslatorsByPair(translators)


@dataclass(frozen=True)
class TranslatedSources:
    """Several `TranslatedSource`s of the same captions, in their order."""

    parts: Sequence[TranslatedSource]

    @classmethod
    def of(cls, given: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> "TranslatedSources":
        """The sources that a mapping of a recipe describes, or a list of mappings.

        Raises:
            RecipeError: as `TranslatedSource.of`, and for an empty list or one with something else.
        """
        parts = [given] if isinstance(given, Mapping) else list(given)
        if not parts or not all(isinstance(part, Mapping) for part in parts):
            raise RecipeError("translate: give {model: …, from: en, to: [de, fr]}, or a list of such")
        return cls([TranslatedSource.of(part) for part in parts])

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts))

    def apply(
        self, corpus: Dataset | IterableDataset, where: str, *, only: Collection[str] | None = None
    ) -> Dataset | IterableDataset:
        """The corpus with the translations of each part; arguments and errors are those of `TranslatedSource`."""
        if len(self.parts) == 1:
            return self.parts[0].apply(corpus, where, only=only)
        if isinstance(corpus, IterableDataset):
            raise RecipeError(f"{where}.translate: a stream is translated from one language: give one mapping")
        own = corpus.with_format(None)["captions"]
        rows = [list(row) for row in own]
        for part in self.parts:
            found = part.apply(corpus, where, only=only).with_format(None)["captions"]
            for row, before, after in zip(rows, own, found, strict=True):
                row += after[len(before) :]  # translations follow the captions that they are of
        return with_captions(corpus, rows)


class _LoadedWhenRead:
    """A translator whose models are loaded by the process that reads a stream. The workers of a data loader are forks
    of another process, which cannot use its accelerator: they translate on the CPU.

    Args:
        source: the models.
        targets: the languages that are translated into.
    """

    def __init__(self, source: TranslatedSource, targets: list[str]) -> None:
        self.source, self.targets = source, targets
        self._loaded: tuple[int, Translator] | None = None

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translates texts, in their order."""
        if self._loaded is None or self._loaded[0] != os.getpid():
            device = None if get_worker_info() is None else "cpu"
            self._loaded = os.getpid(), self.source.translator(self.targets, device)
        return self._loaded[1].translate(texts, source, target)

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "targets": self.targets, "_loaded": None}
