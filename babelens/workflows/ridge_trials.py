"""Tries the closed form on sentences that it does not learn from: before languages are acquired, to say how many
sentences reach what (`forecast`), and beside an adapter or a student, to say whether training was worth it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from string import ascii_lowercase
from typing import Any

import numpy as np

from ..configuration.errors import CorpusError
from ..data.emoji.benchmark import Pairs
from ..evaluation.retrieval import translation_retrieval
from ..inference.embedder import Embedder
from ..trainers.ridge import FEWEST, learn
from ..trainers.ridge_solving import in_random_order
from .acquisition_run import AcquisitionRun
from .ridge_acquisition import RidgeAcquisition

_SIZES = (100, 300, 1000, 3000)  # sentences that are tried
_EXPECTED = (1000, 3000, 10_000)
_HELD_OUT, _FARTHEST = 500, 20  # sentences; times as many sentences as were tried
_LEAST_MISS = 0.5  # percent


@dataclass(frozen=True)
class Trial:
    """Sentences of one language to learn from and to be tried with.

    Args:
        parts: pairs of texts and native texts, each part by its name.
        held_out: pairs that are in none of them.
        others: native texts among which those of `held_out` are to be found, beside each other.
    """

    parts: Mapping[int, Pairs]
    held_out: Pairs
    others: Sequence[str] = ()


def try_out(run: RidgeAcquisition, trials: Mapping[str, Trial]) -> dict[str, dict[int, dict[str, float]]]:
    """Solves for every part; returns `r1` and `r10` in percent by language and part.

    Args:
        run: an acquisition of these languages with its models loaded, whose model is no longer of use then.
        trials: by language.
    """
    keys = [(language, part) for language, trial in trials.items() for part in trial.parts]
    tags = dict(zip(keys, _private_tags(), strict=False))
    pairs = {tag: trials[language].parts[part] for (language, part), tag in tags.items()}
    words = {
        kind: {tag: known[language] for (language, _), tag in tags.items() if language in known}
        for kind, known in (("names", run.emoji_names), ("dictionaries", run.dictionaries))
    }
    learn(run.model, run.processor, pairs, **(run.learning | words))
    embedder = Embedder(run.model, run.processor)
    found: dict[str, dict[int, dict[str, float]]] = {language: {} for language in trials}
    for (language, part), tag in tags.items():
        languages, trial = (tag, run.processor.native_language), trials[language]
        found[language][part] = translation_retrieval(
            embedder, *trial.held_out, languages=languages, others=trial.others
        )
    return found


def _private_tags() -> Iterator[str]:
    """Tags of languages and scripts that BCP 47 leaves to private use, for maps that are thrown away."""
    for script, first, second in product(ascii_lowercase, "abcdefghijklmnopqrst", ascii_lowercase):
        yield f"q{first}{second}-Qaa{script}"


@dataclass(frozen=True)
class Forecast:
    """How many held-out texts find their translation, by the number of sentences to learn from.

    Args:
        tested: the number of held-out texts.
        candidates: the number of native texts among which each looks for its own.
        measured: `r1` and `r10` in percent by the number of sentences.
        exponents: of `r1` and `r10`: the share that is not found falls with the number of sentences to the power of
            minus this. None where too little was tried to tell.
        expected: as `measured`, of more sentences than there are, by these exponents.
    """

    tested: int
    candidates: int
    measured: Mapping[int, Mapping[str, float]]
    exponents: Mapping[str, float] | None = None
    expected: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self)}


def forecast(run: RidgeAcquisition) -> dict[str, Forecast]:
    """Solves on parts of the sentences of each language, and expects what more sentences reach.

    Args:
        run: an acquisition with its models loaded, whose model is no longer of use then.

    Raises:
        CorpusError: for too few translations.
    """
    trials = {}
    for language, (texts, natives) in run.pairs.items():
        order = in_random_order(len(texts))
        tested, rest = np.split(order, [min(len(order) // 5, _HELD_OUT)])
        if len(rest) < FEWEST or not len(tested):
            raise CorpusError(f"{language}: {len(texts)} translations are too few to tell how far more would get")
        sizes = [*(size for size in _SIZES if size < 0.8 * len(rest)), len(rest)]
        parts = {size: _selected(texts, natives, rest[:size]) for size in sizes}
        trials[language] = Trial(parts, _selected(texts, natives, tested), natives)
    return {language: _forecast(trials[language], found) for language, found in try_out(run, trials).items()}


def _selected(texts: Sequence[str], natives: Sequence[str], rows: np.ndarray) -> Pairs:
    return [texts[row] for row in rows], [natives[row] for row in rows]


def _forecast(trial: Trial, measured: dict[int, dict[str, float]]) -> Forecast:
    counts = len(trial.held_out[0]), len(set(trial.others))
    if len(measured) < 2:
        return Forecast(*counts, measured)
    sizes = np.array(list(measured))
    exponents, expected = (
        {},
        {size: dict[str, float]() for size in _EXPECTED if max(sizes) < size <= _FARTHEST * max(sizes)},
    )
    for name in ("r1", "r10"):
        missed = np.array([max(100 - found[name], _LEAST_MISS) for found in measured.values()])
        slope, _ = np.polyfit(np.log(sizes), np.log(missed), 1)
        exponents[name] = max(-float(slope), 0.0)
        for size, numbers in expected.items():
            # From the largest part, which says most of what comes next.
            numbers[name] = 100 - float(missed[-1] * (size / sizes[-1]) ** -exponents[name])
    return Forecast(*counts, measured, exponents, expected)


def closed_form_beside(run: AcquisitionRun) -> RidgeAcquisition:
    """The acquisition in closed form of what another way has learned: the same base, languages and translations, with
    the same text encoder if there is one. It reads no captions."""
    shared = ("base", "translations", "output", "native_language", "text_encoder", "text_pooling", "text_prompt")
    more = ("license", "trust_remote_code", "names")
    given = {name: getattr(run, name) for name in (*shared, *more)}
    training = {name: value for name, value in run.training.items() if name in ("precision", "bf16")}
    return RidgeAcquisition(language=",".join(run.languages), training=training, **given)


def try_beside(run: AcquisitionRun) -> dict[str, dict[str, float]]:
    """`r1` and `r10` by language, as `AcquisitionRun.retrieval_in`, of the closed form on the sentences that `run` was
    trained on.

    Raises:
        TrainingSetupError: for a base that has learned languages in another way.
        CorpusError: for too few sentences.
    """
    closed = closed_form_beside(run)
    closed.load()
    train, held_out = run.split
    trials = {}
    for language in run.languages:
        texts, natives = run.sides(language, held_out)
        if texts:
            part = run.sides(language, train)
            trials[language] = Trial({len(part[0]): part}, (texts, natives), run.others(language))
    return {language: next(iter(found.values())) for language, found in try_out(closed, trials).items()}
