"""Solves for the maps of a `RidgeModel`: languages are learned in closed form, from translations into the language
that the native model reads.

Up to `DUAL` sentences, a language is solved by the similarities of its sentences; the strength of the regression and
the weight of the text encoder are those with the least error where each sentence is left out in turn, which has a
closed form and takes no sentence from the data. Names of things may be added as further texts of less weight. More
sentences are solved by normal equations, which are summed chunk
by chunk, so that memory does not grow with them; then a part of the sentences is held out for the choice.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from datasets.utils.logging import tqdm
from torch import Tensor

from ..configuration.errors import CorpusError
from ..configuration.identity import code_of, settings_of
from ..data.emoji.translations import NameTranslations, Pairs
from ..inference.autocasting import autocasting
from ..inference.embedder import Embedder, evaluation_mode
from ..modeling.modeling_dual_encoder import normalize
from ..modeling.modeling_ridge import RidgeModel, centered
from ..processing.processing_ridge import RidgeProcessor
from .frozen_features import frozen_features, frozen_tensor

logger = logging.getLogger(__name__)

DUAL = 2500  # sentences that are solved by their similarities
FEWEST = 10  # different sentences
_SHARED = 20_000  # sentences of all languages for the map of texts whose language is not stated
_STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_ENCODER_WEIGHTS = (0.25, 0.5, 1.0)
_HELD_OUT, _UNTAUGHT, _CHUNK = 1000, 200, 1024
_RESAMPLES = 1000


@dataclass(frozen=True)
class LanguageResult:
    """How well the map of a language finds translations that it was not solved with.

    Args:
        pairs: the number of sentences.
        tested: of these, how many were tested: all, each left out in turn, or a part that was held out.
        r1, r10: share of texts that find their native translation first, and among the first ten, in percent.
        r10_low, r10_high: 95 % interval of `r10`, by bootstrap over the texts.
        chance: `r10` of a random order.
        zero_shot: `r10` of the native model reading the texts by itself.
        strength: of the regression.
        encoder_weight: of the text encoder beside the n-grams; 0 without one.
        names: the language of the names that were learned beside the sentences; None without names.
    """

    pairs: int
    tested: int
    r1: float
    r10: float
    r10_low: float
    r10_high: float
    chance: float
    zero_shot: float
    strength: float
    encoder_weight: float
    names: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def warning(self, language: str) -> str | None:
        """What is wrong, in words; None if nothing is."""
        if self.r10_low <= 2 * self.chance:
            return (
                f"{language}: {self.r10:.1f} % of the texts find their translation among the first ten, and "
                f"{self.chance:.1f} % would by chance: the two columns hardly translate each other. Look for swapped "
                "columns, shifted lines, or another language in the column"
            )
        if self.zero_shot > self.r10_high:
            return (
                f"{language}: the base model, which was not taught, finds {self.zero_shot:.1f} % among the first ten, "
                f"and the learned map {self.r10:.1f} %: use the base model for this language"
            )
        return None


def learn(
    model: RidgeModel,
    processor: RidgeProcessor,
    translations: Mapping[str, Pairs],
    *,
    names: Mapping[str, NameTranslations] | None = None,
    batch_size: int = 64,
    precision: str = "float32",
    cache_dir: str | None = None,
) -> dict[str, LanguageResult]:
    """Adds languages to a model and its processor. Languages that the model has already stay bitwise what they are.

    Args:
        model: the model.
        processor: its processor.
        translations: by language, texts and the native translation of each.
        names: by language, names of things that are learned beside the sentences.
        batch_size: texts that the encoders read at a time.
        precision: in which the text encoder computes, `float32` or `bfloat16`.
        cache_dir: where its features are kept; by default beside the features of frozen towers.

    Returns:
        How well each language was learned.

    Raises:
        CorpusError: for fewer than ten different sentences in a language.
    """
    for language, (texts, natives) in translations.items():
        if min(len(set(texts)), len(set(natives))) < FEWEST:
            raise CorpusError(
                f"{language}: {len(texts)} translations have {len(set(texts))} different texts of {len(set(natives))} "
                f"different sentences, and at least {FEWEST} are needed"
            )
        if len(texts) < 100:
            logger.warning(
                "%s: %d translations are few; 300 to 1,000 find several times as much", language, len(texts)
            )
    native = Embedder(model.native_model, processor.native, batch_size=batch_size)
    tag = processor.native_language
    sentences = list(dict.fromkeys(each for _, natives in translations.values() for each in natives))
    position = {sentence: index for index, sentence in enumerate(sentences)}
    targets = _native_targets(native, sentences, tag, cache_dir)
    first = not model.config.languages
    if first:
        _set_space(model, torch.from_numpy(targets))
    deviations = _deviations(model, torch.from_numpy(targets))
    named = names or {}
    groups = {(each.language, n): group for each in named.values() for n, group in enumerate(each.groups)}
    features = _encoder_features(model, processor, {**translations, **groups}, batch_size, precision, cache_dir)
    beside = {
        key: _Named(
            _characters(processor, texts),
            features.get(key),
            _deviations(model, torch.from_numpy(_native_targets(native, natives, tag, cache_dir))),
        )
        for key, (texts, natives) in groups.items()
    }
    samples = {language: _in_random_order(len(texts))[:_UNTAUGHT] for language, (texts, _) in translations.items()}
    guessed = [translations[language][0][row] for language, sample in samples.items() for row in sample]
    ends = np.cumsum([len(sample) for sample in samples.values()])
    untaught = dict(zip(samples, np.split(native.encode_text(guessed, language=tag), ends), strict=False))
    start = len(model.config.languages)
    model.maps.add(len(translations))
    model.config.languages = [*model.config.languages, *translations]
    processor.languages = list(model.config.languages)
    results = {}
    for index, (language, (texts, natives)) in enumerate(tqdm(translations.items(), "Languages", disable=None)):
        rows = torch.tensor([position[each] for each in natives])
        characters = _characters(processor, texts)
        more = named.get(language)
        extra = [] if more is None else [beside[more.language, n] for n in range(len(more.groups))]
        solved = _solve(
            model, characters, features.get(language), deviations[rows], extra, 0.0 if more is None else more.weight
        )
        model.maps.set(1 + start + index, solved.importance, solved.ngrams, solved.encoder)
        sampled = rows[torch.from_numpy(samples[language])]
        own = untaught[language]
        found = _result(model, solved, len(texts), targets, rows[solved.tested], sampled, own)
        results[language] = replace(found, names=None if more is None else more.language)
    if first:
        _solve_shared(model, processor, translations, features, deviations, position)
    return results


def _set_space(model: RidgeModel, targets: Tensor) -> None:
    """Sets the mean of the targets [n, d], how far they are from it, and the directions in which they vary most."""
    maps, mean = model.maps, targets.mean(0)
    _, _, directions = torch.linalg.svd(targets - mean, full_matrices=False)
    maps.mean.copy_(mean)
    maps.radius.copy_((targets - mean).norm(dim=1).mean())
    maps.directions.zero_()
    found = directions[: len(maps.directions)]
    maps.directions[: len(found)] = found


def _native_targets(native: Embedder, sentences: list[str], tag: str, cache_dir: str | None) -> np.ndarray:
    """The native model's embeddings of texts in its language [n, d], kept on disk."""
    return frozen_features(
        lambda: native.encode_text(sentences, language=tag),
        weights=native.model.state_dict(),
        settings=f"ridge targets {settings_of(native.model.config)} {code_of(native.model, native.processor)} {tag}",
        items=(text.encode() for text in sentences),
        cache_dir=cache_dir,
    )


def _deviations(model: RidgeModel, targets: Tensor) -> Tensor:
    """Targets [n, d] in the directions of the model, [n, rank]."""
    return (targets - model.maps.mean.float()) @ model.maps.directions.float().T


Characters = Callable[[slice | Tensor], Tensor]  # code points [n, C] of texts at some positions


def _characters(processor: RidgeProcessor, texts: list[str]) -> Characters:
    """The code points of texts, of some at a time, [n, C]."""

    def of(rows: slice | Tensor) -> Tensor:
        chosen = texts[rows] if isinstance(rows, slice) else [texts[row] for row in rows.tolist()]
        return processor.characters(chosen)

    return of


def _encoder_features(
    model: RidgeModel,
    processor: RidgeProcessor,
    translations: Mapping[Any, Pairs],
    batch_size: int,
    precision: str,
    cache_dir: str | None,
) -> dict[Any, Tensor]:
    """The features of the text encoder, by language [n, W]; empty without one. All texts are read in one pass, by
    length, and kept on disk."""
    if model.text_model is None:
        return {}
    texts = [processor.text_prompt + text for of_language, _ in translations.values() for text in of_language]

    def compute() -> Tensor:
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        features = torch.empty(len(texts), model.maps.encoder_mean.shape[1])
        with evaluation_mode(model), autocasting(model.device, precision):
            for start in tqdm(range(0, len(order), batch_size), "Reading texts", leave=False, disable=None):
                rows = order[start : start + batch_size]
                read = processor.encoder_tokenizer(
                    [texts[row] for row in rows],
                    padding=True,
                    truncation=True,
                    max_length=processor.max_text_length,
                    return_tensors="pt",
                ).to(model.device)
                found = model.encoder_features(read["input_ids"], read["attention_mask"])
                assert found is not None
                features[rows] = found.cpu()
        return features

    found = frozen_tensor(
        compute,
        weights=model.text_model.state_dict(),
        settings=f"ridge {settings_of(model.text_model.config)} {model.config.text_pooling} {precision} "
        f"{processor.max_text_length} {code_of(model.text_model, processor.encoder_tokenizer)}",
        items=(text.encode() for text in texts),
        cache_dir=cache_dir,
    )
    counts = [len(of_language) for of_language, _ in translations.values()]
    return dict(zip(translations, found.split(counts), strict=True))


@dataclass(frozen=True)
class _Named:
    """Names that are learned beside sentences."""

    characters: Characters
    pooled: Tensor | None  # [m, W]
    targets: Tensor  # [m, rank]


@dataclass(frozen=True)
class _Solved:
    """The map of a language, and what it predicts for texts that it was not solved with."""

    importance: Tensor  # [rows]
    ngrams: Tensor  # [rows, rank]
    encoder: tuple[Tensor, Tensor] | None  # [W], [W, rank]
    strength: float
    encoder_weight: float
    tested: Tensor  # positions of the texts that were tested
    predicted: Tensor  # [tested, rank]


def _solve(
    model: RidgeModel,
    characters: Characters,
    pooled: Tensor | None,
    targets: Tensor,
    names: Sequence[_Named] = (),
    names_weight: float = 0.0,
) -> _Solved:
    """Solves for one map.

    Args:
        model: the model, whose n-grams are used.
        characters: the code points of texts at some positions.
        pooled ([n, W]): the features of the text encoder.
        targets ([n, rank]): what is to be predicted.
        names: further texts. Features and targets of each group are taken from their own mean: names are another kind
            of text than sentences.
        names_weight: of each of these texts.
    """
    count, width = len(targets), model.maps.importance.shape[1]
    seen = torch.zeros(width)
    for rows in _chunks(count):
        places, kept = model.maps.rows_of(characters(rows))
        present = torch.zeros(len(places), width).scatter_reduce(1, places, kept.float(), "amax")
        seen += present.sum(0)
    importance = ((1 + count) / (1 + seen)).log() + 1
    mean = None if pooled is None else pooled.mean(0)

    def weighted(characters: Tensor) -> Tensor:
        places, weights = model.maps.weighted_ngrams(characters, importance[None])
        return torch.zeros(len(places), width).scatter_add(1, places, weights)

    def ngrams(rows: slice | Tensor) -> Tensor:
        return weighted(characters(rows))

    def encoded(rows: slice | Tensor) -> Tensor | None:
        return None if pooled is None or mean is None else centered(pooled[rows], mean)

    whole = slice(None)
    beside = (
        _Beside(
            torch.cat([weighted(each.characters(whole)) for each in names]) * names_weight**0.5,
            None
            if pooled is None
            else torch.cat([centered(each.pooled, each.pooled.mean(0)) for each in names if each.pooled is not None])
            * names_weight**0.5,
            torch.cat([each.targets - each.targets.mean(0) for each in names]) * names_weight**0.5,
        )
        if names
        else None
    )
    solve = _solve_dual if count <= DUAL else _solve_primal
    map_, strength, weight, tested, predicted = solve(ngrams, encoded, targets, beside)
    encoder = None if mean is None else (mean, map_[width:])
    return _Solved(importance, map_[:width], encoder, strength, weight, tested, predicted)


@dataclass(frozen=True)
class _Beside:
    """Further texts, times the root of their weight."""

    ngrams: Tensor  # [m, rows]
    encoded: Tensor | None  # [m, W]
    targets: Tensor  # [m, rank]


Features = Callable[[slice | Tensor], Tensor]
Solution = tuple[Tensor, float, float, Tensor, Tensor]


def _solve_dual(
    ngrams: Features,
    encoded: Callable[[slice | Tensor], Tensor | None],
    targets: Tensor,
    beside: _Beside | None = None,
) -> Solution:
    """Solves by the similarities of the sentences; each is left out in turn to choose strength and weight."""
    whole = slice(0, len(targets))
    words, features = ngrams(whole), encoded(whole)
    wanted = targets.double()
    similar = _similar(words)
    also = None if features is None else (features @ features.T).double()
    best: tuple[float, float, float, Tensor, Tensor] | None = None
    for weight in _ENCODER_WEIGHTS if also is not None else (0.0,):
        values, vectors = torch.linalg.eigh(similar if also is None else similar + weight * also)
        values, turned = values.clamp(min=0), vectors.T @ wanted
        for strength in _STRENGTHS:
            kept = values / (values + strength)
            leverage = (vectors.square() * kept).sum(1, keepdim=True)
            left_out = (vectors @ (kept[:, None] * turned) - leverage * wanted) / (1 - leverage).clamp(min=1e-9)
            error = float((left_out - wanted).square().mean())
            if best is None or error < best[0]:
                coefficients = vectors @ (turned / (values + strength)[:, None])
                best = error, strength, weight, coefficients.float(), left_out.float()
    assert best is not None
    _, strength, weight, coefficients, left_out = best
    if beside is not None:
        words = torch.cat([beside.ngrams, words])
        features = None if features is None or beside.encoded is None else torch.cat([beside.encoded, features])
        coefficients, left_out = _solve_with_names(words, features, beside.targets, wanted, strength, weight)
    map_ = words.T @ coefficients
    if features is not None:
        map_ = torch.cat([map_, weight * (features.T @ coefficients)])
    return map_, strength, weight, torch.arange(len(targets)), left_out


def _solve_with_names(
    words: Tensor, features: Tensor | None, names: Tensor, wanted: Tensor, strength: float, weight: float
) -> tuple[Tensor, Tensor]:
    """Solves for the coefficients [m + n, rank] of names and sentences, in this order, and predicts each sentence
    without itself. With the names first, the last block of the Cholesky factor is all that leaving out needs."""
    similar = _similar(words) if features is None else _similar(words) + weight * (features @ features.T).double()
    similar.diagonal().add_(strength)
    factor = torch.linalg.cholesky(similar)
    coefficients = torch.cholesky_solve(torch.cat([names.double(), wanted]), factor)
    inverse = torch.cholesky_inverse(factor[len(names) :, len(names) :]).diagonal()
    left_out = wanted - coefficients[len(names) :] / inverse[:, None]
    return coefficients.float(), left_out.float()


def _similar(words: Tensor) -> Tensor:
    """Products [n, n] of n-grams [n, rows], of which few are not zero."""
    return torch.sparse.mm(words.to_sparse(), words.T.contiguous()).double()


def _solve_primal(
    ngrams: Features,
    encoded: Callable[[slice | Tensor], Tensor | None],
    targets: Tensor,
    beside: _Beside | None = None,
) -> Solution:
    """Solves by normal equations, which are summed over chunks; sentences that are held out choose the strength, and
    are then added."""
    weight = 0.0 if encoded(slice(0, 1)) is None else 0.5

    def features(rows: slice | Tensor) -> Tensor:
        beside = encoded(rows)
        return ngrams(rows) if beside is None else torch.cat([ngrams(rows), weight**0.5 * beside], 1)

    order = torch.from_numpy(_in_random_order(len(targets)))
    tested = order[: min(_HELD_OUT, len(order) // 5)].sort().values
    rest = order[len(tested) :]
    width = features(slice(0, 1)).shape[1]
    gram, cross = torch.zeros(width, width), torch.zeros(width, targets.shape[1])
    for rows in rest.split(_CHUNK):
        part = features(rows)
        gram.addmm_(part.T, part)
        cross.addmm_(part.T, targets[rows])
    if beside is not None:
        further = [] if beside.encoded is None else [weight**0.5 * beside.encoded]
        part = torch.cat([beside.ngrams, *further], 1)
        gram.addmm_(part.T, part)
        cross.addmm_(part.T, beside.targets)
    unseen = features(tested)

    def solved(strength: float, gram: Tensor, cross: Tensor) -> Tensor:
        ridge = gram.clone()
        ridge.diagonal().add_(strength)
        return torch.cholesky_solve(cross, torch.linalg.cholesky(ridge))

    best: tuple[float, float, Tensor] | None = None
    for strength in _STRENGTHS[1:]:
        predicted = unseen @ solved(strength, gram, cross)
        error = float((predicted - targets[tested]).square().mean())
        if best is not None and error > best[0]:
            break  # the error has one minimum
        best = error, strength, predicted
    assert best is not None
    _, strength, predicted = best
    map_ = solved(strength, gram + unseen.T @ unseen, cross + unseen.T @ targets[tested])
    if weight:
        map_[ngrams(slice(0, 1)).shape[1] :] *= weight**0.5
    return map_, strength, weight, tested, predicted


def _solve_shared(
    model: RidgeModel,
    processor: RidgeProcessor,
    translations: Mapping[str, Pairs],
    features: Mapping[str, Tensor],
    deviations: Tensor,
    position: Mapping[str, int],
) -> None:
    """Solves for the map of texts whose language is not stated, from some sentences of all languages."""
    if len(translations) == 1:
        model.maps.share(1)
        return
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
    solved = _solve(
        model, _characters(processor, texts), torch.cat(pooled) if pooled else None, deviations[torch.tensor(rows)]
    )
    model.maps.set(0, solved.importance, solved.ngrams, solved.encoder)


def _in_random_order(count: int) -> np.ndarray:
    """The same order at every call, so that the texts that the base is tried on are among those that are held out."""
    return np.random.default_rng(0).permutation(count)


def _chunks(count: int) -> Iterator[slice]:
    for start in range(0, count, _CHUNK):
        yield slice(start, min(start + _CHUNK, count))


def _result(
    model: RidgeModel,
    solved: _Solved,
    pairs: int,
    targets: np.ndarray,
    right: Tensor,
    sampled: Tensor,
    guesses: np.ndarray,
) -> LanguageResult:
    """Retrieval of native sentences by predictions, and by the native model's own embeddings of some texts."""
    maps = model.maps
    predicted = maps.mean + maps.radius * normalize(solved.predicted) @ maps.directions
    places, among = right.unique(return_inverse=True)
    candidates = torch.from_numpy(targets)[places]
    ranks = _ranks(normalize(predicted), candidates, among)
    hits = (ranks < 10).astype(float)
    resampled = np.random.default_rng(0).choice(hits, (_RESAMPLES, len(hits))).mean(1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    inverse = {int(place): index for index, place in enumerate(places)}
    own = _ranks(torch.from_numpy(guesses), candidates, torch.tensor([inverse[int(row)] for row in sampled]))
    return LanguageResult(
        pairs=pairs,
        tested=len(hits),
        r1=100 * float((ranks < 1).mean()),
        r10=100 * float(hits.mean()),
        r10_low=100 * float(low),
        r10_high=100 * float(high),
        chance=100 * min(10 / len(candidates), 1.0),
        zero_shot=100 * float((own < 10).mean()),
        strength=solved.strength,
        encoder_weight=solved.encoder_weight,
    )


def _ranks(queries: Tensor, candidates: Tensor, right: Tensor) -> np.ndarray:
    """How many candidates score as high as the right one or higher, other than it."""
    ranks = []
    for rows in torch.arange(len(queries)).split(_CHUNK):
        scores = queries[rows] @ candidates.T
        ranks.append((scores >= scores.gather(1, right[rows, None])).sum(1) - 1)
    return torch.cat(ranks).numpy()
