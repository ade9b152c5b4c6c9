"""Solves for the maps of a `RidgeModel`: languages are learned in closed form, from translations into the language
that the native model reads.

The regression itself is in `ridge_solving.py`, what it is solved with in `ridge_inputs.py`, and how well each language
was learned in `ridge_results.py`. Names of things may be added to the sentences of a language, as further texts of
less weight. Beside its map, a language learns a glossary (`glossary_learning.py`), if translations that neither was
learned from are found no worse with it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import torch
from datasets.utils.logging import tqdm
from torch import Tensor

from ..data.corpus.captions import enumeration
from ..data.emoji.benchmark import NameTranslations, Pairs
from ..modeling.modeling_dual_encoder import normalize
from ..modeling.modeling_ridge import RidgeModel
from ..modeling.text_features import centered
from ..processing.glossary import Glossary
from ..processing.processing_ridge import RidgeProcessor
from ..processing.text_inputs import UNDETERMINED, counting_cut_texts
from ..utils.errors import CorpusError
from .glossary_learning import glossary_from, held_out_glosses, known_words
from .ridge_inputs import NativeTeacher, Teacher, encoder_features, native_kinds, native_targets, natives_of
from .ridge_results import LanguageResult, gloss_weight_of, result_of
from .ridge_solving import Features, Further, Solution, chunks, in_random_order, solve

logger = logging.getLogger(__name__)

FEWEST = 10  # different sentences
_SHARED = 20_000  # sentences of all languages for the map of texts whose language is not stated
_UNSTATED = 100_000  # native texts, of which a map of a few thousand unknowns needs no more
_AT_ONCE = 4  # languages, each of which takes hundreds of megabytes meanwhile
_UNTAUGHT = 100  # sentences of a language on which the base is tried without its map
# Of a glossary that was not tried: from names alone, and from dictionaries.
_WEIGHT_FROM_NAMES, _WEIGHT_FROM_DICTIONARIES = 0.5, 0.75


def learn(
    model: RidgeModel,
    processor: RidgeProcessor,
    translations: Mapping[str, Pairs],
    *,
    names: Mapping[str, NameTranslations] | None = None,
    dictionaries: Mapping[str, Pairs] | None = None,
    teacher: Teacher | None = None,
    glossaries: bool = True,
    batch_size: int = 64,
    precision: str = "float32",
    cache_dir: str | None = None,
) -> dict[str, LanguageResult]:
    """Adds languages to a model and its processor. Languages that the model has already stay bitwise what they are.
    Maps are solved for on the CPU. After an error or an interrupt, model and processor are what they were.

    Args:
        model: the model.
        processor: its processor.
        translations: by language, texts and the native translation of each.
        names: by language, names of things that are learned beside the sentences.
        dictionaries: by language, words and a native translation of each, which the glossaries know, beside the
            words that the model has for a language already.
        teacher: embeds the native texts, by default the native model.
        glossaries: whether languages learn glossaries, which only the native model itself can read.
        batch_size: texts that the encoders read at a time.
        precision: in which the text encoder computes, `float32` or `bfloat16`.
        cache_dir: where its features are kept; by default beside the features of frozen towers.

    Returns:
        How well each language was learned.

    Raises:
        CorpusError: for fewer than ten different sentences in a language.
    """
    with _learning(model, processor):
        return _learn(
            model, processor, translations, names, dictionaries, teacher, glossaries, batch_size, precision, cache_dir
        )


@contextmanager
def _learning(model: RidgeModel, processor: RidgeProcessor) -> Iterator[None]:
    """Holds the maps on the CPU during the block; restores model and processor if the block fails."""
    maps, config, device = model.maps, model.config, model.maps.mean.device
    maps.cpu()
    values = {name: value.clone() if not config.languages else value for name, value in maps.named_buffers()}
    settings = {name: getattr(config, name) for name in ("languages", "gloss_weights", "token_kinds")}
    kinds, glossaries = model.token_kinds, dict(processor.glossaries)
    read = processor.languages, processor.any_language
    try:
        with counting_cut_texts() as cut:
            yield
    except BaseException:
        for name, value in values.items():
            setattr(maps, name, value)
        for name, setting in settings.items():
            setattr(config, name, setting)
        model.token_kinds = kinds
        processor.glossaries.clear()
        processor.glossaries.update(glossaries)
        processor.languages, processor.any_language = read
        raise
    finally:
        maps.to(device)
    if cut.texts:
        logger.info("%d texts are longer than the %s that the base reads, and were cut", len(cut.texts), cut.limit)


def _learn(
    model: RidgeModel,
    processor: RidgeProcessor,
    translations: Mapping[str, Pairs],
    names: Mapping[str, NameTranslations] | None,
    dictionaries: Mapping[str, Pairs] | None,
    teacher: Teacher | None,
    glossaries: bool,
    batch_size: int,
    precision: str,
    cache_dir: str | None,
) -> dict[str, LanguageResult]:
    _check_counts(translations)
    teacher = teacher or NativeTeacher(model, processor, batch_size)
    logger.info("embedding the %s sentences with the base", processor.native_language)
    targets, position = native_targets(teacher, natives_of(translations), cache_dir)
    first = not model.maps.has_shared
    if first:
        _set_space(model, targets)
    deviations = _deviations(model, targets)
    named = names or {}
    groups = {(tag, n): group for tag, each in named.items() for n, group in enumerate(each.groups)}
    reading = {"batch_size": batch_size, "precision": precision, "cache_dir": cache_dir}
    if model.text_model is not None:
        logger.info("reading the translations with the text encoder")
    features = encoder_features(model, processor, translations, **reading)
    further = _names(model, processor, teacher, groups, cache_dir)
    start = len(model.config.languages)
    reads_glosses = glossaries and isinstance(teacher, NativeTeacher)
    reading_native = Lock()  # a tokenizer reads for one at a time

    def embedded(texts: list[str]) -> tuple[Tensor, dict[str, int]]:
        # How the base reads what it was not taught, in part or not at all, is measured: nobody needs a warning of it.
        with counting_cut_texts(), reading_native:
            return native_targets(teacher, texts, cache_dir)

    def learn_one(language: str) -> Learned:
        texts, natives = translations[language]
        rows = torch.tensor([position[each] for each in natives])
        more = named.get(language)
        groups_beside = [] if more is None else list(more.groups)
        beside = [further[language, n] for n in range(len(groups_beside))]
        characters, pooled = _characters(processor, texts, language), features.get(language)
        weight = 0.0 if more is None else more.weight
        solved, values = _solve(model, characters, pooled, deviations[rows], beside, weight)
        tested, found, chosen, glossary = solved.tested, normalize(solved.predicted), 0.0, {}
        if reads_glosses:
            given = _known_words(processor, language, dictionaries, natives)
            known = {**_words_before(processor, language), **given}
            own, theirs = _spelled(processor, language, (texts, natives))
            spelled_names = [_spelled(processor, language, pairs) for pairs in groups_beside]
            tested, glosses = held_out_glosses(own, theirs, spelled_names, known)
            found = found[torch.searchsorted(solved.tested, tested)]
            directions = _directions_of(model, embedded, glosses)
            chosen, found = gloss_weight_of(model, found, directions, targets, rows[tested], rows[solved.tested])
            glossary = glossary_from(own, theirs, spelled_names, known) if chosen else {}
        untaught = None
        if teacher.reads_any:
            sample = in_random_order(len(texts))[:_UNTAUGHT].tolist()
            guesses, place = embedded([texts[row] for row in sample])
            untaught = rows[sample], guesses[[place[texts[row]] for row in sample]]
        result = result_of(model, solved, found, targets, rows, tested, untaught)
        names = None if more is None else more.language
        return replace(result, names=names, gloss_weight=chosen, words=len(glossary)), glossary, values

    logger.info("learning %s", enumeration(list(translations)))
    learned = dict(zip(translations, _at_once(learn_one, list(translations)), strict=True))
    shared = None
    if first:
        shared = _solve_shared(model, processor, translations, features, deviations, position)
        shared = shared or next(iter(learned.values()))[2]
    # Solved for: from here on, the model has the languages.
    model.maps.add(len(translations))
    if shared is not None:
        model.maps.set(0, shared)
    results = {}
    for index, (language, (result, glossary, values)) in enumerate(learned.items()):
        model.maps.set(1 + start + index, values)
        results[language] = result
        if glossary:
            processor.glossaries[language] = Glossary(glossary)
    left_out = [tag for tag, found in results.items() if (dictionaries or {}).get(tag) and not found.gloss_weight]
    if left_out and reads_glosses:
        logger.warning(
            "translations are found worse with the dictionary, which is left out: %s", enumeration(left_out)
        )
    model.config.languages = [*model.config.languages, *translations]
    processor.languages = list(model.config.languages)
    gloss_weights = list(model.config.gloss_weights or [0.0] * (1 + start))
    gloss_weights += [each.gloss_weight for each in results.values()]
    model.config.gloss_weights = gloss_weights if any(gloss_weights) else []
    return results


def _spelled(processor: RidgeProcessor, language: str, pairs: Pairs) -> Pairs:
    """Texts of a language as glossaries read them, and their native translations with one code point for a letter."""
    texts, natives = pairs
    return processor.folded(texts, language), processor.with_same_letters(natives, processor.native_language)


def _known_words(
    processor: RidgeProcessor, language: str, dictionaries: Mapping[str, Pairs] | None, natives: Sequence[str]
) -> Mapping[str, str]:
    given = (dictionaries or {}).get(language)
    return known_words(language, {language: _spelled(processor, language, given)} if given else {}, natives)


def _words_before(processor: RidgeProcessor, language: str) -> dict[str, str]:
    """The words of a language that a model knows before it learns the language from translations: of a dictionary,
    from names, and corrected by hand."""
    glossary = processor.glossaries.get(language)
    return {} if glossary is None else {word: native for word, native in glossary.entries.items() if native}


Values = dict[str, Tensor]  # of one map
Learned = tuple[LanguageResult, dict[str, str], Values]  # and the glossary


def _at_once(do: Callable[[str], Learned], languages: Sequence[str]) -> Iterator[Learned]:
    """Yields what is learned of each language, in their order. Some languages are learned at the same time and share
    the threads, which is quicker than one after the other with all threads."""
    threads = torch.get_num_threads()
    workers = min(threads, len(languages), _AT_ONCE)
    torch.set_num_threads(threads // workers)
    pool = ThreadPoolExecutor(workers)
    try:
        yield from tqdm(pool.map(do, languages), "Languages", len(languages), disable=None)
        pool.shutdown()
    except Exception:
        pool.shutdown(cancel_futures=True)
        raise
    finally:  # after an interrupt, nobody waits for what is being learned, which may take minutes
        pool.shutdown(wait=False, cancel_futures=True)
        torch.set_num_threads(threads)


def learn_unstated(
    model: RidgeModel,
    processor: RidgeProcessor,
    texts: Sequence[str],
    *,
    names: Mapping[str, NameTranslations] | None = None,
    dictionaries: Mapping[str, Pairs] | None = None,
    batch_size: int = 64,
    precision: str = "float32",
    cache_dir: str | None = None,
) -> dict[str, LanguageResult]:
    """Solves for the map of texts in any language that the text encoder reads, from native texts alone: where the
    encoder puts translations near each other, texts and tokens (`TokenKinds`), the map leads them to one place (arXiv
    2601.10096). Languages that have names or a dictionary learn glossaries from these alone.

    Args:
        model: a model with a text encoder, and without languages.
        processor: its processor, which reads texts in any language by this map afterwards.
        texts: texts in the native language. Of more than 100,000, some are taken.
        names, dictionaries: by language, as those of `learn`.
        batch_size, precision, cache_dir: as those of `learn`.

    Returns:
        By the tag `und`, how well native texts find their own embedding.

    Raises:
        CorpusError: for fewer than ten different texts.
    """
    if len(texts) > _UNSTATED:
        logger.info("learning from %d of %d texts", _UNSTATED, len(texts))
        texts = [texts[row] for row in np.sort(in_random_order(len(texts))[:_UNSTATED])]
    own = {UNDETERMINED: (list(texts), list(texts))}
    _check_counts(own)
    with _learning(model, processor):
        return _learn_unstated(model, processor, texts, names, dictionaries, batch_size, precision, cache_dir)


def _learn_unstated(
    model: RidgeModel,
    processor: RidgeProcessor,
    texts: Sequence[str],
    names: Mapping[str, NameTranslations] | None,
    dictionaries: Mapping[str, Pairs] | None,
    batch_size: int,
    precision: str,
    cache_dir: str | None,
) -> dict[str, LanguageResult]:
    own = {UNDETERMINED: (list(texts), list(texts))}
    targets, position = native_targets(NativeTeacher(model, processor, batch_size), texts, cache_dir)
    _set_space(model, targets)
    reading = {"batch_size": batch_size, "precision": precision, "cache_dir": cache_dir}
    kinds = native_kinds(model, processor, texts, **reading)
    if kinds is not None:
        model.take_kinds(kinds)
    pooled = encoder_features(model, processor, own, **reading)[UNDETERMINED]
    rows = torch.tensor([position[each] for each in texts])
    solved, values = _solve(model, None, pooled, _deviations(model, targets)[rows])
    model.maps.set(0, values)
    processor.any_language = True
    named, translated = names or {}, dictionaries or {}
    for tag in tqdm(sorted({*named, *translated}), "Glossaries", disable=None):
        known = _known_words(processor, tag, translated, texts)
        groups = named[tag].groups if tag in named else ()
        glossary = glossary_from([], [], [_spelled(processor, tag, pairs) for pairs in groups], known)
        if glossary:
            processor.glossaries[tag] = Glossary(glossary)
    if processor.glossaries:
        model.config.gloss_weights = [_WEIGHT_FROM_DICTIONARIES if translated else _WEIGHT_FROM_NAMES]
    return {UNDETERMINED: result_of(model, solved, normalize(solved.predicted), targets, rows, solved.tested)}


def _check_counts(translations: Mapping[str, Pairs]) -> None:
    for language, (texts, natives) in translations.items():
        if min(len(set(texts)), len(set(natives))) < FEWEST:
            raise CorpusError(
                f"{language}: {len(texts)} sentences have {len(set(texts))} different texts of {len(set(natives))} "
                f"different sentences, and at least {FEWEST} are needed"
            )


def _set_space(model: RidgeModel, targets: Tensor) -> None:
    """Sets the mean of the targets [n, d], how far they are from it, and the directions in which they vary most."""
    maps, mean = model.maps, targets.mean(0)
    _, _, directions = torch.linalg.svd(targets - mean, full_matrices=False)
    maps.mean, maps.radius = mean, (targets - mean).norm(dim=1).mean()
    found = directions[: len(maps.directions)]
    maps.directions = torch.cat([found, found.new_zeros(len(maps.directions) - len(found), found.shape[1])])


def _deviations(model: RidgeModel, targets: Tensor) -> Tensor:
    """Targets [n, d] in the directions of the model, [n, rank]."""
    return (targets - model.maps.mean.float()) @ model.maps.directions.float().T


Characters = Callable[[slice | Tensor], Tensor]  # code points [n, C] of texts at some positions


def _characters(processor: RidgeProcessor, texts: list[str], language: str) -> Characters:
    """The code points of texts in a language, of some at a time, [n, C]."""

    def of(rows: slice | Tensor) -> Tensor:
        chosen = texts[rows] if isinstance(rows, slice) else [texts[row] for row in rows.tolist()]
        return processor.characters(chosen, language)

    return of


@dataclass(frozen=True)
class _Names:
    """Names that are learned beside sentences, by their n-grams alone: a text encoder takes twice as long to read
    them as the sentences, and photographs were found no more than half a point better for it."""

    characters: Characters
    targets: Tensor  # [m, rank], from their own mean


def _names(
    model: RidgeModel, processor: RidgeProcessor, teacher: Teacher, groups: Mapping[Any, Pairs], cache_dir: str | None
) -> dict[Any, _Names]:
    """By language and number, groups of names with their targets, each from its own mean: names are another kind of
    text than sentences."""
    if not groups:
        return {}
    targets, position = native_targets(teacher, natives_of(groups), cache_dir)
    deviations = _deviations(model, targets)
    found = {}
    for key, (texts, natives) in groups.items():
        wanted = deviations[[position[each] for each in natives]]
        found[key] = _Names(_characters(processor, texts, key[0]), wanted - wanted.mean(0))
    return found


def _solve(
    model: RidgeModel,
    characters: Characters | None,
    pooled: Tensor | None,
    targets: Tensor,
    names: Sequence[_Names] = (),
    weight: float = 0.0,
) -> tuple[Solution, Values]:
    """Solves for one map of a model.

    Args:
        model: the model.
        characters: the code points of texts at some positions; None leaves them out.
        pooled ([n, W]): the features of the text encoder.
        targets ([n, rank]): what is to be predicted.
        names: names that are learned beside the texts.
        weight: of each name.
    """
    count, width = len(targets), model.maps.importance.shape[1]
    seen = torch.zeros(width)
    if characters is not None:
        for rows in chunks(count):
            places, kept = model.maps.rows_of(characters(rows))
            seen += _sparse(places, kept.float(), width).indices()[1].bincount(minlength=width)
    importance = torch.zeros(width) if characters is None else ((1 + count) / (1 + seen)).log() + 1

    def weighted(characters: Characters, rows: slice | Tensor) -> Tensor:
        places, weights = model.maps.weighted_ngrams(characters(rows), importance[None])
        return _sparse(places, weights, width)

    mean, encoded, further = None, None, None
    if pooled is not None:
        mean = pooled.mean(0)[: model.maps.encoder_mean.shape[1]]
        encoded = _centered_features(pooled, mean)
    if names:
        root = weight**0.5
        parts = [weighted(each.characters, rows) for each in names for rows in chunks(len(each.targets))]
        further = Further(root * torch.cat(parts), root * torch.cat([each.targets for each in names]))

    def ngrams(rows: slice | Tensor) -> Tensor:
        if characters is None:
            return torch.zeros(len(targets[rows]), 0).to_sparse()
        return weighted(characters, rows)

    solution = solve(ngrams, encoded, targets, further)
    encoder = None if mean is None or solution.encoder is None else (mean, solution.encoder)
    learned = torch.zeros(width, targets.shape[1]) if characters is None else solution.ngrams
    return solution, model.maps.rounded(importance, learned, encoder)


def _sparse(places: Tensor, weights: Tensor, width: int) -> Tensor:
    """Sparse rows [n, width] that have weights [n, J] at some places [n, J]."""
    texts, columns = weights.nonzero(as_tuple=True)
    where = torch.stack([texts, places[texts, columns]])
    size = (len(places), width)
    return torch.sparse_coo_tensor(where, weights[texts, columns], size, check_invariants=False).coalesce()


def _centered_features(pooled: Tensor, mean: Tensor) -> Features:
    return lambda rows: centered(pooled[rows], mean)


def _solve_shared(
    model: RidgeModel,
    processor: RidgeProcessor,
    translations: Mapping[str, Pairs],
    features: Mapping[str, Tensor],
    deviations: Tensor,
    position: Mapping[str, int],
) -> Values | None:
    """Solves for the map of texts whose language is not stated, from some sentences of all languages; None for a
    single language whose map serves them too."""
    if len(translations) == 1:
        ((language, (own, _)),) = translations.items()
        if processor.folded(own, language) == processor.folded(own, UNDETERMINED):
            return None
    each = max(_SHARED // len(translations), 1)
    texts: list[str] = []
    rows: list[int] = []
    pooled = []
    for language, (own, natives) in translations.items():
        chosen = np.random.default_rng(0).permutation(len(own))[:each]
        texts += [own[index] for index in chosen]
        rows += [position[natives[index]] for index in chosen]
        if language in features:
            pooled.append(features[language][torch.from_numpy(chosen)])
    characters = _characters(processor, texts, UNDETERMINED)
    return _solve(model, characters, torch.cat(pooled) if pooled else None, deviations[torch.tensor(rows)])[1]


Embedded = Callable[[list[str]], tuple[Tensor, dict[str, int]]]  # as `native_targets` embeds native texts


def _directions_of(model: RidgeModel, embedded: Embedded, glosses: Sequence[str]) -> Tensor:
    """The directions [n, rank] in which the native model puts glosses; 0 for those without a word."""
    directions = torch.zeros(len(glosses), len(model.maps.directions))
    if read := [row for row, gloss in enumerate(glosses) if gloss]:
        targets, place = embedded([glosses[row] for row in read])
        directions[read] = model.maps.direction_of(targets[[place[glosses[row]] for row in read]])
    return directions
