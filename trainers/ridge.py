"""Solves for the maps of a `RidgeModel`: learns languages in closed form, from translations into the native model's
language. A language also learns a glossary, unless it makes retrieval of held-out translations worse."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets.utils.logging import tqdm
from torch import Tensor

from ..data.corpus.corpus import enumeration
from ..data.emoji.names import NameTranslations, Pairs
from ..modeling.modeling_dual_encoder import normalize
from ..modeling.modeling_ridge import RidgeModel, centered
from ..processing.glossary import Glossary
from ..processing.processing_per_language import counting_cut_texts
from ..processing.processing_ridge import RidgeProcessor
from ..utils.errors import CorpusError
from ..utils.languages import UNDETERMINED
from .glossary_learning import (
    TESTED_LISTS,
    Pair,
    glossary_from,
    glossary_of_words,
    is_held_out,
    known_words,
    without_held_out,
    word_lists,
)
from .ridge_inputs import NativeTeacher, Teacher, encoder_features, language_codes, native_targets
from .ridge_solving import (
    CAPTIONS,
    DUAL,
    SENTENCES,
    WORDS,
    Further,
    LanguageResult,
    Solution,
    discriminating,
    gloss_weight_of,
    in_random_order,
    ranks_of,
    result_of,
    solve_by_held_out,
    solve_by_similarities,
)

logger = logging.getLogger(__name__)

FEWEST = 10  # different sentences
_SHARED = 20_000  # sentences of all languages for the map for texts without a stated language
_UNSTATED = 100_000  # native texts; a map with a few thousand unknowns does not need more
_AT_ONCE = 4  # languages; each one takes hundreds of megabytes
_UNTAUGHT = 100  # sentences of a language on which the base model is evaluated without the map
# The weight of a glossary without held-out sentences: learned only from names, and from dictionaries.
_WEIGHT_FROM_NAMES, _WEIGHT_FROM_DICTIONARIES = 0.5, 0.75

_TEXTS = 256  # at a time, whose n-grams fit in the processor's cache
_WORDS = 5000  # of a dictionary, for a map
_LISTS = 1000  # of words
_WORD_WEIGHT = 0.3  # of each, relative to a list of words
# The weight of a glossary from only a dictionary, whose held-out lists are too easy for a choice; and where the map
# reads only a part of the words. Photographs are found best at 1 to 4, and at 2 to 6.
_WEIGHT_OF_WORDS, _WEIGHT_OF_MORE_WORDS = 2.0, 3.0
# With sentences: the first weight that does not make retrieval worse than without a glossary, or twice as much if that
# does not either.
_WEIGHTS, _WEIGHTS_WITH_WORDS = (1.0, 0.5), (2.0, 1.0, 0.5)
# With captions alone; twice as much is the most that is chosen. Held-out captions favor a higher weight, because the
# base may know the native captions of these photographs from its own training. Photographs are found best at 0.25 to
# 0.5 after 1,000 captions, at 0 to 0.25 after 5,000.
_WEIGHTS_WITH_CAPTIONS, _WEIGHTS_WITH_CAPTIONS_AND_WORDS = (0.125,), (0.25,)
_CAPTIONS = 5000  # in addition to translations
_CAPTION_WEIGHTS = (0.03, 0.1, 0.3)  # relative to translations

Captions = tuple[list[str], Tensor]  # texts and the embedding of each image [n, d]
Values = dict[str, Tensor]  # of one map, as `RidgeMaps.rounded` returns them
Characters = Callable[[Tensor], Tensor]  # positions -> code points [n, C] of the texts


def learn(
    model: RidgeModel,
    processor: RidgeProcessor,
    translations: Mapping[str, Pairs],
    *,
    names: Mapping[str, NameTranslations] | None = None,
    dictionaries: Mapping[str, Pairs] | None = None,
    captions: Mapping[str, Captions] | None = None,
    teacher: Teacher | None = None,
    glossaries: bool = True,
    precision: str = "float32",
    cache_dir: str | None = None,
) -> dict[str, LanguageResult]:
    """Adds languages to a model and its processor, and returns the retrieval results of each language. Existing
    languages stay bitwise unchanged; after an error or an interrupt, so do model and processor. Maps are solved for on
    the CPU.

    Args:
        translations: language -> texts and their native translations; they may be empty for a language with captions
            or a dictionary. Otherwise, at least ten must differ.
        names: language -> names of things to learn in addition to the sentences.
        dictionaries: language -> words and a native translation of each, in addition to the words that the model
            already has. The glossary gets them; without sentences and captions, the map, too.
        captions: language -> captions and the native model's embeddings of their images.
        teacher: embeds the native texts; by default the native model.
        glossaries: whether to learn glossaries, which only the native model can read.
        precision: `float32` or `bfloat16`, of the text encoder.
        cache_dir: for the text encoder's features; by default the folder for the features of frozen towers.
    """
    given = teacher or NativeTeacher(model, processor), names or {}, dictionaries or {}, glossaries
    learner = _Learner(model, processor, *given, precision, cache_dir)
    with _restored_on_error(model, processor):
        return learner.learn(translations, captions or {})


def learn_unstated(
    model: RidgeModel,
    processor: RidgeProcessor,
    texts: Sequence[str],
    *,
    names: Mapping[str, NameTranslations] | None = None,
    dictionaries: Mapping[str, Pairs] | None = None,
    precision: str = "float32",
    cache_dir: str | None = None,
) -> dict[str, LanguageResult]:
    """Solves for the map for texts in any language that the text encoder reads, only from native texts (a sample, if
    there are more than 100,000): the encoder puts translations near each other, so the map gives them similar
    embeddings (arXiv 2601.10096). Languages with names or a dictionary learn glossaries from these. The model has a
    text encoder and no languages; the other arguments are those of `learn`. Returns, for the tag `und`, how well
    native texts retrieve their own embeddings."""
    given = NativeTeacher(model, processor), names or {}, dictionaries or {}, True
    learner = _Learner(model, processor, *given, precision, cache_dir)
    with _restored_on_error(model, processor):
        return learner.learn_unstated(texts)


def _check_counts(language: str, texts: Sequence[str], natives: Sequence[str]) -> None:
    if min(len(set(texts)), len(set(natives))) < FEWEST:
        raise CorpusError(
            f"{language}: {len(texts)} sentences have {len(set(texts))} different texts and {len(set(natives))} "
            f"different translations; at least {FEWEST} of each are needed"
        )


@contextmanager
def _restored_on_error(model: RidgeModel, processor: RidgeProcessor) -> Iterator[None]:
    """Keeps the maps on the CPU during the block, and restores model and processor if the block fails."""
    maps, device = model.maps, model.maps.mean.device
    maps.cpu()
    before: list[tuple[Any, str, Any]] = [(maps, name, value) for name, value in maps.named_buffers()]
    before += [(model.config, name, getattr(model.config, name)) for name in ("languages", "gloss_weights")]
    settings = ("_glossaries", "languages", "any_language", "language_codes")
    before += [(processor, name, copy(getattr(processor, name))) for name in settings]
    try:
        with counting_cut_texts() as cut:
            yield
    except BaseException:
        for changed, name, value in before:
            setattr(changed, name, value)
        raise
    finally:
        maps.to(device)
    if cut:
        limit = next(iter(cut.values()))
        logger.info("%d texts are longer than the base model reads (%s) and were truncated", len(cut), limit)


class _Further(NamedTuple):
    """Names and captions that are learned in addition to sentences, only by their n-grams: encoding names with a text
    encoder takes twice as long as encoding the sentences, and improved photo retrieval by at most half a point."""

    characters: Characters
    targets: Tensor  # [m, rank], relative to their own mean: they are another kind of text, or images
    weight: float  # of each, relative to a sentence


@dataclass
class _Lesson:
    """The data for the map of a language: texts, and the target of each."""

    language: str
    texts: list[str]
    characters: Characters
    natives: list[str]  # empty for captions
    rows: Tensor  # the target of each text
    targets: Tensor  # [n, d], embeddings of native texts, or of images
    deviations: Tensor  # [n, rank], of the targets from their mean
    pooled: Tensor | None  # [texts, W], features of the text encoder
    further: Sequence[_Further] = ()


class _Learned(NamedTuple):
    result: LanguageResult
    glossary: dict[str, str]
    values: Values


@dataclass
class _Learner:
    """One call of `learn` or `learn_unstated`, with its arguments as fields."""

    model: RidgeModel
    processor: RidgeProcessor
    teacher: Teacher
    names: Mapping[str, NameTranslations]
    dictionaries: Mapping[str, Pairs]
    glossaries: bool
    precision: str
    cache_dir: str | None
    targets: Tensor = field(init=False)  # [n, d], for all different native texts
    position: dict[str, int] = field(init=False)  # native text -> its row
    deviations: Tensor = field(init=False)  # [n, rank], of the targets from their mean
    known: dict[str, Mapping[str, str]] = field(default_factory=dict)  # language -> words, each with a translation

    def learn(self, translations: Mapping[str, Pairs], captions: Mapping[str, Captions]) -> dict[str, LanguageResult]:
        model, processor, is_first = self.model, self.processor, not self.model.maps.has_shared
        of_words = [tag for tag in translations if not translations[tag][0] and tag not in captions]
        for tag, (_, natives) in translations.items():
            # A word that the model already has may come from a dictionary, from names, or from a user.
            before = processor.glossaries.get(tag, Glossary({})).entries
            known = {word: native for word, native in before.items() if native}
            self.known[tag] = known | self._known_words(tag, natives, self._named(tag) if tag in of_words else [])
            if tag in of_words and (count := len(self.known[tag])) < FEWEST:
                raise CorpusError(f"{tag}: the dictionary has {count} usable words; at least {FEWEST}")
        lists = {tag: word_lists(dict(islice(self.known[tag].items(), _WORDS)), _LISTS) for tag in of_words}
        translations = {**translations, **lists}
        texts = {tag: pairs if pairs[0] else (captions[tag][0], []) for tag, pairs in translations.items()}
        for tag, (own, natives) in texts.items():
            _check_counts(tag, own, natives or own)
        if natives := [native for _, each in translations.values() for native in each]:
            self._embed_natives(natives, sets_space=is_first)
        elif is_first:  # the mean of native texts if there are any, because they lie apart from images
            named = (text for each in self.names.values() for _, texts in each.groups for text in texts)
            said = list(islice(chain(named, *(known.values() for known in self.known.values())), _CAPTIONS))
            images = torch.cat([images for _, images in captions.values()])
            self._set_space(self._embedded(said) if said else images, images)
        if model.text_model is not None:
            processor.language_codes |= language_codes(processor.encoder_tokenizer, translations)
        features = self._encoded({tag: own for tag, (own, _) in texts.items()})
        names = self._names()
        lessons: dict[str, _Lesson] = {}
        for tag, (own, natives) in texts.items():
            if natives:
                found = torch.tensor([self.position[each] for each in natives]), self.targets, self.deviations
            else:
                images, rows = captions[tag][1].unique(dim=0, return_inverse=True)
                found = rows, images, self._centered(images)
            characters = _characters(processor, own, tag)
            lessons[tag] = _Lesson(tag, own, characters, natives, *found, features.get(tag))
        logger.info("learning %s", enumeration(list(translations)))

        def learn_one(language: str) -> _Learned:
            lesson = replace(lessons[language], further=names(language))
            if language in lists:
                return self._learn_words(lesson)
            return self._learn_one(lesson, captions.get(language) if lesson.natives else None)

        # Solved first, because the glossaries of all languages take 400 MB later. A single language lends its own map.
        shared = self._solve_shared(list(lessons.values())) if is_first else None
        model.maps.add(len(translations))
        learned = {}
        taught = zip(translations, _at_once(learn_one, list(translations)), strict=True)
        for index, (tag, each) in enumerate(taught, 1 + len(model.config.languages)):
            model.maps.set_map(index, each.values)
            learned[tag] = each._replace(values={})  # the maps of 200 languages take 430 MB
        if is_first:
            model.maps.set_map(0, shared or each.values)
        self._add(learned)
        of_names, results = {tag: each.language for tag, each in self.names.items()}, {}
        for tag, each in learned.items():
            results[tag] = replace(each.result, names=of_names.get(tag), words=len(each.glossary))
        left_out = [tag for tag, found in results.items() if self.dictionaries.get(tag) and not found.gloss_weight]
        if left_out and self._reads_glosses:
            logger.warning(
                "retrieval of translations is worse with the dictionary, which is left out: %s", enumeration(left_out)
            )
        return results

    def _learn_one(self, lesson: _Lesson, captions: Captions | None) -> _Learned:
        """Learns the map of a language, and its glossary unless it makes retrieval of translations worse."""
        language, texts, rows = lesson.language, lesson.texts, lesson.rows
        natives, wanted = lesson.natives, lesson.deviations[lesson.rows]
        if captions is not None:
            solved, values = self._with_captions(lesson, captions, wanted)
        else:
            given = self.model, lesson.characters, lesson.pooled
            solved, values = _solve(*given, wanted, lesson.further, of_images=not natives)
        tested, found, chosen, glossary = solved.tested, normalize(solved.predicted), 0.0, {}
        if self._reads_glosses:
            spelled = [*zip(*self._spelled(language, (texts, natives or [""] * len(texts))), strict=True)]
            further, known = self._named(language), self.known[language]
            tested, learned = without_held_out(spelled, further, known)
            read = self.processor.glossary(learned)
            glosses = [read.gloss(spelled[row][0]) for row in tested.tolist()]
            weights: Sequence[float]
            if natives:
                weights = _WEIGHTS_WITH_WORDS if self.dictionaries.get(language) else _WEIGHTS
            else:
                weights = _WEIGHTS_WITH_CAPTIONS_AND_WORDS if known else _WEIGHTS_WITH_CAPTIONS
            ranks = partial(ranks_of, self.model, lesson.targets, rows[tested], rows[solved.tested].unique())
            found = found[torch.searchsorted(solved.tested, tested)]
            chosen, found = gloss_weight_of(ranks, found, self._directions(glosses), weights)
            glossary = glossary_from(spelled, further, known) if chosen else {}
        untaught = None
        if self.teacher.reads_any:
            sample = in_random_order(len(texts))[:_UNTAUGHT].tolist()
            untaught = rows[sample], self._embedded([texts[row] for row in sample])
        result = result_of(self.model, solved, found, lesson.targets, rows, tested, untaught)
        result = replace(result, gloss_weight=chosen, learned_from=SENTENCES if natives else CAPTIONS)
        return _Learned(result, glossary, values)

    def _with_captions(self, lesson: _Lesson, captions: Captions, wanted: Tensor) -> tuple[Solution, Values]:
        """Solves for sentences and captions together, with the weight of captions that predicts sentences best."""
        chosen = np.sort(in_random_order(len(captions[0]))[:_CAPTIONS])
        own = _characters(self.processor, [captions[0][row] for row in chosen], lesson.language)
        seen = self._centered(captions[1][chosen])
        seen = seen @ discriminating(_solve(self.model, own, None, seen)[0], seen)
        seen *= wanted.norm(dim=1).mean() / seen.norm(dim=1).mean()
        further = ([*lesson.further, _Further(own, seen, weight)] for weight in _CAPTION_WEIGHTS)
        solutions = [_solve(self.model, lesson.characters, lesson.pooled, wanted, each) for each in further]
        return min(solutions, key=lambda each: (each[0].predicted - wanted[each[0].tested]).square().mean())

    def _learn_words(self, lesson: _Lesson) -> _Learned:
        """Learns a map from the words of a dictionary and from lists of them, and a glossary. Both are tested on lists
        that contain unseen words, a fifth of all."""
        model, language, pooled, known = self.model, lesson.language, lesson.pooled, self.known[lesson.language]
        wanted, words = self._centered(lesson.targets[lesson.rows]), list(known)[:_WORDS]
        deviations = self._centered(self._embedded([known[word] for word in words]))

        def solved_from(lists: slice, entries: Sequence[int]) -> tuple[Solution, Values]:
            own = _characters(self.processor, [words[row] for row in entries], language)
            also = _Further(own, deviations[entries], _WORD_WEIGHT)
            characters = _characters(self.processor, lesson.texts[lists], language)
            encoded = None if pooled is None else pooled[lists]
            return _solve(model, characters, encoded, wanted[lists], [*lesson.further, also])

        tested = torch.arange(min(TESTED_LISTS, len(wanted)))
        lists, kept = lesson.texts[: len(tested)], [row for row in range(len(words)) if not is_held_out(row)]
        solved, values = solved_from(slice(len(tested), None), kept)
        characters = _characters(self.processor, lists, language)
        found = torch.sparse.mm(_ngrams(model, characters, tested, values["importance"]), solved.ngrams)
        if pooled is not None and solved.encoder is not None:
            found = found + centered(pooled[: len(found)], values["encoder_mean"]) @ solved.encoder
        found, weight = normalize(found), 0.0
        if self._reads_glosses:
            glossary = self.processor.glossary({words[row]: known[words[row]] for row in kept})
            weight = _WEIGHT_OF_WORDS if len(known) <= _WORDS else _WEIGHT_OF_MORE_WORDS
            found = normalize(found + weight * self._directions([glossary.gloss(text) for text in lists]))
        result = result_of(model, replace(solved, tested=tested), found, lesson.targets, lesson.rows[tested], tested)
        result = replace(result, pairs=len(known), gloss_weight=weight, learned_from=WORDS)
        learned = glossary_of_words(self._named(language), known) if weight else {}
        return _Learned(result, learned, solved_from(slice(None), range(len(words)))[1])

    @property
    def _reads_glosses(self) -> bool:
        return self.glossaries and isinstance(self.teacher, NativeTeacher)

    def _directions(self, glosses: list[str]) -> Tensor:
        """Returns the directions of texts translated word by word [n, rank]; 0 where no word is known."""
        found = torch.zeros(len(glosses), len(self.model.maps.directions))
        if read := [row for row, gloss in enumerate(glosses) if gloss]:
            found[read] = self.model.maps.direction_of(self._embedded([glosses[row] for row in read]))
        return found

    def _embedded(self, texts: list[str]) -> Tensor:
        """Returns the teacher's embeddings of texts [n, d]."""
        # The base model is measured on a language that it has not learned: a warning would not help.
        with counting_cut_texts():
            found, place = native_targets(self.teacher, texts, self.cache_dir)
        return found[[place[text] for text in texts]]

    def learn_unstated(self, texts: Sequence[str]) -> dict[str, LanguageResult]:
        model, processor = self.model, self.processor
        if len(texts) > _UNSTATED:
            logger.info("learning from %d of %d texts", _UNSTATED, len(texts))
            texts = [texts[row] for row in np.sort(in_random_order(len(texts))[:_UNSTATED])]
        texts = list(texts)
        _check_counts(UNDETERMINED, texts, texts)
        self._embed_natives(texts, sets_space=True)
        processor.language_codes |= language_codes(processor.encoder_tokenizer)
        pooled = self._encoded({UNDETERMINED: texts})[UNDETERMINED]
        rows = torch.tensor([self.position[each] for each in texts])
        solved, values = _solve(model, None, pooled, self.deviations[rows])
        model.maps.add(0)  # copies the maps, which an error restores
        model.maps.set_map(0, values)
        processor.any_language = True
        for tag in tqdm(sorted({*self.names, *self.dictionaries}), "Glossaries", disable=None):
            if glossary := glossary_from([], self._named(tag), self._known_words(tag, texts)):
                processor.glossaries[tag] = processor.glossary(glossary)
        if processor.glossaries:
            model.config.gloss_weights = [_WEIGHT_FROM_DICTIONARIES if self.dictionaries else _WEIGHT_FROM_NAMES]
        found = normalize(solved.predicted)
        return {UNDETERMINED: result_of(model, solved, found, self.targets, rows, solved.tested)}

    def _encoded(self, texts: Mapping[str, list[str]]) -> dict[str, Tensor]:
        return encoder_features(self.model, self.processor, texts, self.precision, self.cache_dir)

    def _embed_natives(self, texts: Iterable[str], *, sets_space: bool) -> None:
        self.targets, self.position = native_targets(self.teacher, texts, self.cache_dir)
        if sets_space:
            self._set_space(self.targets, self.targets)
        self.deviations = self._deviations(self.targets, self.model.maps.mean)

    def _set_space(self, texts: Tensor, varied: Tensor) -> None:
        """Sets the mean of texts, how far embeddings are from theirs, and the directions in which they vary most."""
        maps, deviations = self.model.maps, varied - varied.mean(0)
        _, _, directions = torch.linalg.svd(deviations, full_matrices=False)
        maps.mean, maps.radius = texts.mean(0), deviations.norm(dim=1).mean()
        found = directions[: len(maps.directions)]
        maps.directions = torch.cat([found, found.new_zeros(len(maps.directions) - len(found), found.shape[1])])

    def _deviations(self, targets: Tensor, mean: Tensor) -> Tensor:
        """Projects targets [n, d], relative to their own mean or the model's, on its directions, [n, rank]."""
        return (targets - mean) @ self.model.maps.directions.float().T

    def _centered(self, targets: Tensor) -> Tensor:
        return self._deviations(targets, targets.mean(0))

    def _names(self) -> Callable[[str], list[_Further]]:
        """Returns a function from a language to its groups of names with their targets, which take 5 MB."""
        translated = [native for each in self.names.values() for _, natives in each.groups for native in natives]
        if not translated:
            return lambda language: []
        targets, position = native_targets(self.teacher, translated, self.cache_dir)
        deviations = self._deviations(targets, self.model.maps.mean)

        def groups(language: str) -> list[_Further]:
            found = []
            for texts, natives in self.names[language].groups if language in self.names else ():
                wanted = deviations[[position[each] for each in natives]]
                characters = _characters(self.processor, texts, language)
                found.append(_Further(characters, wanted - wanted.mean(0), self.names[language].weight))
            return found

        return groups

    def _spelled(self, language: str, pairs: Pairs) -> Pairs:
        """Returns texts as glossaries read them, and their native translations with one code point per letter."""
        native = self.processor.with_same_letters(pairs[1], self.processor.native_language)
        return self.processor.folded(pairs[0], language), native

    def _named(self, language: str) -> list[Pair]:
        groups = self.names[language].groups if language in self.names else ()
        return [pair for group in groups for pair in zip(*self._spelled(language, group), strict=True)]

    def _known_words(self, language: str, natives: Sequence[str], names: Sequence[Pair] = ()) -> dict[str, str]:
        given = self.dictionaries.get(language)
        if not given:
            return {}
        return known_words(language, self._spelled(language, given), natives, self.processor.tokenizer, names)

    def _solve_shared(self, lessons: Sequence[_Lesson]) -> Values | None:
        """Solves for the map for texts without a stated language, from some sentences of all languages; None if there
        is a single language, whose map is used for them."""
        texts, folded = lessons[0].texts, self.processor.folded
        if len(lessons) == 1 and folded(texts, lessons[0].language) == folded(texts, UNDETERMINED):
            return None
        texts, wanted, pooled = [], [], []
        for lesson in lessons:
            chosen = torch.from_numpy(in_random_order(len(lesson.texts))[: max(_SHARED // len(lessons), 1)])
            texts += [lesson.texts[index] for index in chosen.tolist()]
            wanted.append(lesson.deviations[lesson.rows[chosen]])
            if lesson.pooled is not None:
                pooled.append(lesson.pooled[chosen])
        characters = _characters(self.processor, texts, UNDETERMINED)
        return _solve(self.model, characters, torch.cat(pooled) if pooled else None, torch.cat(wanted))[1]

    def _add(self, learned: Mapping[str, _Learned]) -> None:
        config = self.model.config
        given = {tag: self.processor.glossary(each.glossary) for tag, each in learned.items() if each.glossary}
        self.processor.glossaries.update(given)
        weights = list(config.gloss_weights or [0.0] * (1 + len(config.languages)))
        config.languages = [*config.languages, *learned]
        self.processor.languages = list(config.languages)
        weights += [each.result.gloss_weight for each in learned.values()]
        config.gloss_weights = weights if any(weights) else []


def _at_once(do: Callable[[str], _Learned], languages: Sequence[str]) -> Iterator[_Learned]:
    """Yields the result of each language, in order. Several languages are learned at the same time and share the
    threads, which is faster than one after the other with all threads."""
    threads = torch.get_num_threads()
    workers = min(threads, len(languages), _AT_ONCE)
    torch.set_num_threads(threads // workers)
    pool = ThreadPoolExecutor(workers)
    try:
        yield from tqdm(pool.map(do, languages), "Languages", len(languages), disable=None)
    finally:  # after an error, do not wait for languages in progress, which can take minutes
        pool.shutdown(wait=False, cancel_futures=True)
        torch.set_num_threads(threads)


def _characters(processor: RidgeProcessor, texts: list[str], language: str) -> Characters:
    """Returns a function from positions to the code points [n, C] of the texts at these positions."""
    return lambda rows: processor.characters([texts[row] for row in rows.tolist()], language)


def _solve(
    model: RidgeModel,
    characters: Characters | None,
    pooled: Tensor | None,
    targets: Tensor,
    further: Sequence[_Further] = (),
    of_images: bool = False,
) -> tuple[Solution, Values]:
    """Solves for a map from the code points of texts (None leaves out the n-grams), the features of the text encoder
    [n, W] and more texts, to the targets [n, rank], `discriminating` if these are images."""
    count, width = len(targets), model.maps.importance.shape[1]
    importance = torch.zeros(width)
    if characters is not None:
        seen = torch.zeros(width)
        for rows in torch.arange(count).split(_TEXTS):
            places, kept = model.maps.rows_of(characters(rows))
            seen += _sparse(places, kept.float(), width).indices()[1].bincount(minlength=width)
        importance = ((1 + count) / (1 + seen)).log() + 1

    def ngrams(rows: Tensor) -> Tensor:
        if characters is None:
            return torch.zeros(len(rows), 0).to_sparse()
        return _ngrams(model, characters, rows, importance)

    mean = None if pooled is None else pooled.mean(0)
    encoded = None if pooled is None or mean is None else lambda rows: centered(pooled[rows], mean)
    added = None
    if further:
        parts = [
            each.weight**0.5 * _ngrams(model, each.characters, rows, importance)
            for each in further
            for rows in torch.arange(len(each.targets)).split(_TEXTS)
        ]
        added = Further(torch.cat(parts), torch.cat([each.weight**0.5 * each.targets for each in further]))
    solve = solve_by_similarities if count <= DUAL else solve_by_held_out
    solution = solve(ngrams, encoded, targets, added)
    if of_images:  # a strength chosen for these targets would be too high
        weights = discriminating(solution, targets)
        solution = solve(ngrams, encoded, targets @ weights, added, solution.strength)
    encoder = None if mean is None or solution.encoder is None else (mean, solution.encoder)
    learned = torch.zeros(width, targets.shape[1]) if characters is None else solution.ngrams
    return solution, model.maps.rounded(importance, learned, encoder)


def _ngrams(model: RidgeModel, characters: Characters, rows: Tensor, importance: Tensor) -> Tensor:
    """Returns the weighted n-grams of texts, sparse [n, width]."""
    places, weights = model.maps.weighted_ngrams(characters(rows), importance[None])
    return _sparse(places, weights, len(importance))


def _sparse(places: Tensor, weights: Tensor, width: int) -> Tensor:
    """Returns sparse rows [n, width] with the weights [n, J] at the columns `places` [n, J]."""
    texts, columns = weights.nonzero(as_tuple=True)
    where = torch.stack([texts, places[texts, columns]])
    size = (len(places), width)
    return torch.sparse_coo_tensor(where, weights[texts, columns], size, check_invariants=False).coalesce()
