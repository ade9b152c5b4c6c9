"""Solves for the maps of a `RidgeModel`: languages are learned in closed form, from translations into the language
that the native model reads.

The regression itself is in `ridge_solving.py`. Here are its features and targets, which are computed once and kept on
disk, and the test of what each language has learned. Names of things may be added to the sentences of a language, as
further texts of less weight. Beside its map, a language learns a glossary (`glossary_learning.py`), if translations
that neither was learned from are found better with it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from datasets.utils.logging import tqdm
from torch import Tensor, nn

from ..configuration.errors import CorpusError
from ..configuration.identity import model_identity
from ..data.emoji.benchmark import NameTranslations, Pairs
from ..modeling.encoding import evaluation_mode
from ..modeling.modeling_dual_encoder import normalize
from ..modeling.modeling_mla_base import MlaPreTrainedModel
from ..modeling.modeling_mla_student import MlaStudentModel
from ..modeling.modeling_ridge import RidgeModel, centered
from ..processing.glossary import Glossary
from ..processing.processing_mla_student import MlaStudentProcessor
from ..processing.processing_ridge import RidgeProcessor
from ..processing.text_inputs import UNDETERMINED
from .frozen_features import EncoderFeatures, frozen_tensor
from .glossary_learning import learn_glossary
from .ridge_solving import CHUNK, Features, Further, Solution, chunks, in_random_order, solve, solve_linear

logger = logging.getLogger(__name__)

FEWEST = 10  # different sentences
_SHARED = 20_000  # sentences of all languages for the map of texts whose language is not stated
_UNTAUGHT = 200  # sentences of a language on which the base is tried without its map
_RESAMPLES = 1000
_UNGLOSSED = 300  # sentences of a language that say how much weight its glossary has
_GLOSS_WEIGHTS = (1.0, 0.5)  # the first with which translations are found no worse than without
_WEIGHT_FROM_NAMES = 0.5  # of a glossary that was learned from names alone, and not tried


class Teacher(Protocol):
    """What embeds native texts, in the place of a model's native model.

    Attributes:
        reads_any: whether it embeds any text, also in the languages to be learned.
    """

    reads_any: bool

    def encode(self, texts: Sequence[str], /) -> np.ndarray:
        """Returns embeddings [n, d] of unit length."""


class _NativeModel:
    """The native model as a teacher."""

    reads_any = True

    def __init__(
        self, model: MlaPreTrainedModel, processor: RidgeProcessor | MlaStudentProcessor, batch_size: int
    ) -> None:
        from ..inference.embedder import Embedder  # imports what loads encoders of every kind

        self._embedder = Embedder(model.native_model, processor.native, batch_size=batch_size)
        self._language = processor.native_language

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self._embedder.encode_text(list(texts), language=self._language)

    @property
    def identity(self) -> str:
        return model_identity(self._embedder.model, self._embedder.processor, "ridge targets", self._language)


@dataclass(frozen=True)
class LanguageResult:
    """How well the map of a language finds translations that it was not solved with.

    Args:
        pairs: the number of sentences.
        tested: of these, how many were tested: all, each left out in turn, or a part that was held out.
        r1, r10: share of texts that find their native translation first, and among the first ten, in percent.
        r10_low, r10_high: 95 % interval of `r10`, by bootstrap over the texts.
        chance: `r10` of a random order.
        zero_shot: `r10` of the native model reading the texts by itself; None where it was not asked.
        strength: of the regression.
        encoder_weight: of the text encoder beside the n-grams; 0 without one.
        names: the language of the names that were learned beside the sentences; None without names.
        gloss_weight: of the text translated word by word, beside the map's prediction; 0 without a glossary.
        words: the number of words in the glossary.
    """

    pairs: int
    tested: int
    r1: float
    r10: float
    r10_low: float
    r10_high: float
    chance: float
    zero_shot: float | None
    strength: float
    encoder_weight: float
    names: str | None = None
    gloss_weight: float = 0.0
    words: int = 0

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
        if self.zero_shot is not None and self.zero_shot > self.r10_high:
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
    teacher: Teacher | None = None,
    glossaries: bool = True,
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
    _check_counts(translations)
    teacher = teacher or _NativeModel(model, processor, batch_size)
    targets, position = _native_targets(teacher, translations, cache_dir)
    first = not model.maps.has_shared
    if first:
        _set_space(model, targets)
    deviations = _deviations(model, targets)
    named = names or {}
    groups = {(each.language, n): group for each in named.values() for n, group in enumerate(each.groups)}
    reading = {"batch_size": batch_size, "precision": precision, "cache_dir": cache_dir}
    features = _encoder_features(model, processor, {**translations, **groups}, **reading)
    further = _names(model, processor, teacher, groups, features, cache_dir)
    samples = {language: in_random_order(len(texts))[:_UNTAUGHT] for language, (texts, _) in translations.items()}
    untaught: dict[str, np.ndarray] = {}
    if teacher.reads_any:
        guessed = [translations[language][0][row] for language, sample in samples.items() for row in sample]
        ends = np.cumsum([len(sample) for sample in samples.values()])
        untaught = dict(zip(samples, np.split(teacher.encode(guessed), ends), strict=False))
    start = len(model.config.languages)
    model.maps.add(len(translations))
    gloss_weights = list(model.config.gloss_weights or [0.0] * (1 + start))
    model.config.languages = [*model.config.languages, *translations]
    processor.languages = list(model.config.languages)
    results = {}
    for index, (language, (texts, natives)) in enumerate(tqdm(translations.items(), "Languages", disable=None)):
        rows = torch.tensor([position[each] for each in natives])
        characters = _characters(processor, texts)
        more = named.get(language)
        beside = [] if more is None else [further[more.language, n] for n in range(len(more.groups))]
        weight = 0.0 if more is None else more.weight
        pooled = features.get(language)
        solved = _solve(model, 1 + start + index, characters, pooled, deviations[rows], beside, weight)
        tested, predicted = solved.tested, normalize(solved.predicted)
        glossary, chosen = None, 0.0
        if glossaries and isinstance(teacher, _NativeModel):
            further_words = [] if more is None else list(more.groups)
            chosen, tested, predicted = _gloss_weight(
                model, teacher, (texts, natives), further_words, targets, rows, solved
            )
            if chosen:
                glossary = Glossary(_learn_glossary(texts, natives, further_words))
                processor.glossaries[language] = glossary
        gloss_weights.append(chosen)
        sampled = rows[torch.from_numpy(samples[language])]
        own = untaught.get(language)
        found = _result(model, solved, predicted, len(texts), targets, rows[tested], rows[solved.tested], sampled, own)
        results[language] = replace(
            found,
            names=None if more is None else more.language,
            gloss_weight=chosen,
            words=0 if glossary is None else len(glossary.entries),
        )
    model.config.gloss_weights = gloss_weights if any(gloss_weights) else []
    if first:
        _solve_shared(model, processor, translations, features, deviations, position)
    return results


def learn_unstated(
    model: RidgeModel,
    processor: RidgeProcessor,
    texts: Sequence[str],
    *,
    names: Iterable[NameTranslations] = (),
    batch_size: int = 64,
    precision: str = "float32",
    cache_dir: str | None = None,
) -> dict[str, LanguageResult]:
    """Solves for the map of texts in any language that the text encoder reads, from native texts alone: where the
    encoder puts translations near each other, the map leads them to one place (arXiv 2601.10096). Languages that have
    names learn glossaries from these alone.

    Args:
        model: a model with a text encoder, and without languages.
        processor: its processor, which reads texts in any language by this map afterwards.
        texts: texts in the native language.
        names: of each language that has some, names of things.
        batch_size, precision, cache_dir: as those of `learn`.

    Returns:
        By the tag `und`, how well native texts find their own embedding.

    Raises:
        CorpusError: for fewer than ten different texts.
    """
    own = {UNDETERMINED: (list(texts), list(texts))}
    _check_counts(own)
    targets, position = _native_targets(_NativeModel(model, processor, batch_size), own, cache_dir)
    _set_space(model, targets)
    reading = {"batch_size": batch_size, "precision": precision, "cache_dir": cache_dir}
    pooled = _encoder_features(model, processor, own, **reading)[UNDETERMINED]
    rows = torch.tensor([position[each] for each in texts])
    solved = _solve(model, 0, None, pooled, _deviations(model, targets)[rows])
    processor.any_language = True
    for each in tqdm(names, "Glossaries", disable=None):
        processor.glossaries[each.language] = Glossary(_learn_glossary([], [], each.groups))
    if processor.glossaries:
        model.config.gloss_weights = [_WEIGHT_FROM_NAMES]
    predicted, tested = normalize(solved.predicted), rows[solved.tested]
    return {UNDETERMINED: _result(model, solved, predicted, len(texts), targets, tested, tested)}


@torch.no_grad()
def solve_projection(
    model: MlaStudentModel,
    processor: MlaStudentProcessor,
    translations: Mapping[str, Pairs],
    *,
    batch_size: int = 64,
    precision: str = "float32",
    cache_dir: str | None = None,
) -> None:
    """Sets the projection of a student, a linear layer, to the one that leads the features of its text encoder best to
    where the native model puts the translations. Training goes on from there.

    Args:
        model: the student, whose projection has no hidden layer.
        processor: its processor.
        translations: by language, texts and the native translation of each. Of many, some are taken.
        batch_size, precision, cache_dir: as those of `learn`.
    """
    each = max(_SHARED // len(translations), 1)
    chosen: dict[str, Pairs] = {}
    for language, (texts, natives) in translations.items():
        rows = in_random_order(len(texts))[:each]
        chosen[language] = [texts[row] for row in rows], [natives[row] for row in rows]
    targets, position = _native_targets(_NativeModel(model, processor, batch_size), chosen, cache_dir)
    features = EncoderFeatures(
        model.text_model,
        processor.tokenizer,
        lambda ids, mask: model.tower_features.get_text_features(ids, mask).pooler_output,
        model.config.text_pooling,
        processor.text_prompt,
        processor.max_text_length,
        batch_size,
        precision,
        cache_dir,
    ).of({language: texts for language, (texts, _) in chosen.items()})
    wanted = targets[[position[native] for _, natives in chosen.values() for native in natives]]
    with evaluation_mode(model):  # without dropout
        known = model.text_head_input(torch.cat(list(features.values())))
    weight, bias = solve_linear(known, wanted)
    assert isinstance(model.projection, nn.Linear)
    model.projection.load_state_dict({"weight": weight, "bias": bias})


def _check_counts(translations: Mapping[str, Pairs]) -> None:
    for language, (texts, natives) in translations.items():
        if min(len(set(texts)), len(set(natives))) < FEWEST:
            raise CorpusError(
                f"{language}: {len(texts)} sentences have {len(set(texts))} different texts of {len(set(natives))} "
                f"different sentences, and at least {FEWEST} are needed"
            )
        if len(texts) < 100:
            logger.warning("%s: %d sentences are few; 300 to 1,000 find several times as much", language, len(texts))


def _set_space(model: RidgeModel, targets: Tensor) -> None:
    """Sets the mean of the targets [n, d], how far they are from it, and the directions in which they vary most."""
    maps, mean = model.maps, targets.mean(0)
    _, _, directions = torch.linalg.svd(targets - mean, full_matrices=False)
    maps.mean.copy_(mean)
    maps.radius.copy_((targets - mean).norm(dim=1).mean())
    maps.directions.zero_()
    found = directions[: len(maps.directions)]
    maps.directions[: len(found)] = found


def _native_targets(
    teacher: Teacher, translations: Mapping[Any, Pairs], cache_dir: str | None
) -> tuple[Tensor, dict[str, int]]:
    """The teacher's embeddings of all different native texts [n, d], and the position of each text. Those of a native
    model are kept on disk."""
    texts = list(dict.fromkeys(each for _, natives in translations.values() for each in natives))

    def compute() -> Tensor:
        return torch.from_numpy(teacher.encode(texts))

    if isinstance(teacher, _NativeModel):
        items = (text.encode() for text in texts)
        targets = frozen_tensor(compute, weights={}, settings=teacher.identity, items=items, cache_dir=cache_dir)
    else:
        targets = compute()
    return targets, {text: index for index, text in enumerate(texts)}


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
    model: RidgeModel, processor: RidgeProcessor, translations: Mapping[Any, Pairs], **reading: Any
) -> dict[Any, Tensor]:
    """The features of the text encoder, by language [n, W]; empty without one."""
    if model.text_model is None:
        return {}
    features = EncoderFeatures(
        model.text_model,
        processor.encoder_tokenizer,
        model.encoder_features,
        model.config.text_pooling,
        processor.text_prompt,
        processor.max_text_length,
        **reading,
    )
    return features.of({name: texts for name, (texts, _) in translations.items()})


@dataclass(frozen=True)
class _Names:
    """Names that are learned beside sentences."""

    characters: Characters
    pooled: Tensor | None  # [m, W], from their own mean
    targets: Tensor  # [m, rank], from their own mean


def _names(
    model: RidgeModel,
    processor: RidgeProcessor,
    teacher: Teacher,
    groups: Mapping[Any, Pairs],
    features: Mapping[Any, Tensor],
    cache_dir: str | None,
) -> dict[Any, _Names]:
    """Groups of names with their features and targets, each from its own mean: names are another kind of text than
    sentences."""
    if not groups:
        return {}
    targets, position = _native_targets(teacher, groups, cache_dir)
    deviations = _deviations(model, targets)
    found = {}
    for key, (texts, natives) in groups.items():
        wanted = deviations[[position[each] for each in natives]]
        pooled = None if key not in features else centered(features[key], features[key].mean(0))
        found[key] = _Names(_characters(processor, texts), pooled, wanted - wanted.mean(0))
    return found


def _solve(
    model: RidgeModel,
    index: int,
    characters: Characters | None,
    pooled: Tensor | None,
    targets: Tensor,
    names: Sequence[_Names] = (),
    weight: float = 0.0,
) -> Solution:
    """Solves for one map of a model, and sets it.

    Args:
        model: the model.
        index: the position of the map.
        characters: the code points of texts at some positions; None leaves them out.
        pooled ([n, W]): the features of the text encoder.
        targets ([n, rank]): what is to be predicted.
        names: names that are learned beside the texts.
        weight: of each name.
    """
    count, width = len(targets), model.maps.importance.shape[1]
    seen, importance = torch.zeros(width), torch.zeros(width)
    if characters is not None:
        for rows in chunks(count):
            places, kept = model.maps.rows_of(characters(rows))
            present = torch.zeros(len(places), width).scatter_reduce(1, places, kept.float(), "amax")
            seen += present.sum(0)
        importance = ((1 + count) / (1 + seen)).log() + 1

    def weighted(characters: Tensor) -> Tensor:
        places, weights = model.maps.weighted_ngrams(characters, importance[None])
        return torch.zeros(len(places), width).scatter_add(1, places, weights)

    mean, encoded, further = None, None, None
    if pooled is not None:
        mean = pooled.mean(0)
        encoded = _centered_features(pooled, mean)
    if names:
        root = weight**0.5
        theirs = [each.pooled for each in names if each.pooled is not None]
        further = Further(
            root * torch.cat([weighted(each.characters(slice(None))) for each in names]),
            root * torch.cat(theirs) if theirs else None,
            root * torch.cat([each.targets for each in names]),
        )

    def ngrams(rows: slice | Tensor) -> Tensor:
        return torch.zeros(len(targets[rows]), width) if characters is None else weighted(characters(rows))

    solution = solve(ngrams, encoded, targets, further)
    encoder = None if mean is None or solution.encoder is None else (mean, solution.encoder)
    model.maps.set(index, importance, solution.ngrams, encoder)
    return solution


def _centered_features(pooled: Tensor, mean: Tensor) -> Features:
    return lambda rows: centered(pooled[rows], mean)


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
    characters = _characters(processor, texts)
    _solve(model, 0, characters, torch.cat(pooled) if pooled else None, deviations[torch.tensor(rows)])


def _learn_glossary(
    texts: Sequence[str], natives: Sequence[str], further: Sequence[Pairs], without: Sequence[int] = ()
) -> dict[str, str]:
    """A glossary from sentences and names, without some of the sentences and all others that have a side of them."""
    out = {texts[row] for row in without} | {natives[row] for row in without}
    kept = [pair for pair in zip(texts, natives, strict=True) if out.isdisjoint(pair)]
    return learn_glossary(kept, [pair for group in further for pair in zip(*group, strict=True)])


def _gloss_weight(
    model: RidgeModel,
    teacher: _NativeModel,
    pairs: Pairs,
    further: Sequence[Pairs],
    targets: Tensor,
    rows: Tensor,
    solved: Solution,
) -> tuple[float, Tensor, Tensor]:
    """Chooses the weight of a glossary by sentences from which neither it nor the map was learned.

    Args:
        model: the model.
        teacher: its native model.
        pairs: the sentences of the language.
        further: names with their translations.
        targets ([n, d]), rows: native embeddings, and those of the sentences among them.
        solved: the map.

    Returns:
        The weight, 0 where translations are found as well without; the positions of the sentences; and the directions
        that are predicted for them.
    """
    texts, natives = pairs
    order = in_random_order(len(texts))[: max(min(_UNGLOSSED, len(texts) // 5), 1)]
    held_out = torch.from_numpy(np.sort(order))
    predicted = normalize(solved.predicted[torch.searchsorted(solved.tested, held_out)])
    glossary = Glossary(_learn_glossary(texts, natives, further, held_out.tolist()))
    glosses = [glossary.gloss(texts[row]) for row in held_out]
    read = [place for place, gloss in enumerate(glosses) if gloss]
    directions = torch.zeros_like(predicted)
    if read:
        embedded = torch.from_numpy(teacher.encode([glosses[place] for place in read]))
        directions[read] = model.maps.direction_of(embedded)
    candidates, among = rows[solved.tested].unique(return_inverse=True)
    right = among[torch.searchsorted(solved.tested, held_out)]

    def score(found: Tensor) -> float:
        """The mean of one over the place at which each translation is found."""
        return float((1 / (1 + _ranks(_embeddings(model, found), targets[candidates], right))).mean())

    least = score(predicted)
    for weight in _GLOSS_WEIGHTS:
        found = normalize(predicted + weight * directions)
        if read and score(found) >= least:
            return weight, held_out, found
    return 0.0, held_out, predicted


def _embeddings(model: RidgeModel, directions: Tensor) -> Tensor:
    """Embeddings [n, d] of length 1 at directions [n, rank] from the mean."""
    return normalize(model.maps.mean + model.maps.radius * directions @ model.maps.directions)


def _result(
    model: RidgeModel,
    solved: Solution,
    predicted: Tensor,
    pairs: int,
    targets: Tensor,
    right: Tensor,
    among: Tensor,
    sampled: Tensor | None = None,
    guesses: np.ndarray | None = None,
) -> LanguageResult:
    """Retrieval of native sentences by predictions, and by the native model's own embeddings of some texts.

    Args:
        model: the model.
        solved: the map.
        predicted ([t, rank]): the directions that are predicted for texts from which nothing was learned.
        pairs: the number of sentences.
        targets ([n, d]): native embeddings.
        right ([t]): the target of each of the texts.
        among: the targets among which each is to be found.
        sampled, guesses: the targets of other texts, and the native model's embeddings of these.
    """
    places = among.unique()
    candidates = targets[places]
    ranks = _ranks(_embeddings(model, predicted), candidates, torch.searchsorted(places, right))
    hits = (ranks < 10).astype(float)
    resampled = np.random.default_rng(0).choice(hits, (_RESAMPLES, len(hits))).mean(1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    zero_shot = None
    if sampled is not None and guesses is not None:
        own = _ranks(torch.from_numpy(guesses), candidates, torch.searchsorted(places, sampled))
        zero_shot = 100 * float((own < 10).mean())
    return LanguageResult(
        pairs=pairs,
        tested=len(hits),
        r1=100 * float((ranks < 1).mean()),
        r10=100 * float(hits.mean()),
        r10_low=100 * float(low),
        r10_high=100 * float(high),
        chance=100 * min(10 / len(candidates), 1.0),
        zero_shot=zero_shot,
        strength=solved.strength,
        encoder_weight=solved.encoder_weight,
    )


def _ranks(queries: Tensor, candidates: Tensor, right: Tensor) -> np.ndarray:
    """How many candidates score as high as the right one or higher, other than it."""
    ranks = []
    for rows in torch.arange(len(queries)).split(CHUNK):
        scores = queries[rows] @ candidates.T
        ranks.append((scores >= scores.gather(1, right[rows, None])).sum(1) - 1)
    return torch.cat(ranks).numpy()
