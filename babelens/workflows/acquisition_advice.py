"""Which of the two ways to teach a model languages fits, and what each costs: an adapter in the model's own text
tower, or a student beside it.

A student is advised

    for several languages at once, because an adapter holds one language;
    for a small text tower (fewer than `FEWEST_BLOCKS` blocks, or narrower than `LEAST_WIDTH`), in which acquirers have
        little to work with;
    for a language that the adapter's vocabulary does not cover (more than `MOST_UNKNOWN` percent of its pieces are
        [UNK]), if the student's covers it better.

In all other cases an adapter is advised: it trains fewer parameters, is published as an adapter of PEFT, and leaves
every language that the base has bitwise as it is. A base that has acquired languages always takes a further adapter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ..configuration.errors import BabelensError
from ..configuration.strict_config import TEXT_TEXT
from ..data.batching.views import translation_pairs
from ..data.corpus.sampling import evenly_spread
from ..processing.tokenizer_training import unknown_rate
from ..trainers.tower_training import TrainedTowers, checked_training
from .acquisition_choices import Way
from .acquisition_run import AcquisitionRun
from .time_budget import step_time

FEWEST_BLOCKS, LEAST_WIDTH, MOST_UNKNOWN = 4, 256, 5.0
_SAMPLE = 1000  # texts of each language at most, by which a vocabulary is judged


@dataclass(frozen=True)
class WayCosts:
    """What a way to acquire languages costs.

    Args:
        trained_parameters: the number of parameters that are trained.
        added_parameters: the number of parameters that a user downloads beside those of the base.
        unknown_rate: the share of [UNK] in the given texts, in percent of their pieces; of the worst language.
        pieces_per_word: the pieces of a word, on the mean of the given texts; of the worst language. Words are what
            stands between spaces.
        steps: the steps of training on translations.
        seconds_per_step: measured on this machine, in the precision of the training.
        seconds_once: of computing what the frozen layers of a student's text encoder give for all texts; estimated by
            a few texts.
        is_measured: whether whole steps were measured. One that takes more than five seconds is not, and its time is
            estimated by a step of eight texts.
    """

    trained_parameters: int
    added_parameters: int
    unknown_rate: float
    pieces_per_word: float
    steps: int
    seconds_per_step: float
    seconds_once: float
    is_measured: bool

    @property
    def minutes(self) -> float:
        """The time of training on translations."""
        return (self.seconds_once + self.steps * self.seconds_per_step) / 60


@dataclass(frozen=True)
class Advice:
    """Which way fits, and what each costs.

    Args:
        recommended: the way that fits.
        reason: why.
        ways: the costs of each way that was looked at.
        impossible: why a way that was looked at is not possible.
    """

    recommended: Way
    reason: str
    ways: Mapping[Way, WayCosts]
    impossible: Mapping[Way, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        ways = {way: asdict(each) | {"minutes": each.minutes} for way, each in self.ways.items()}
        return {
            "recommended": self.recommended,
            "reason": self.reason,
            "ways": ways,
            "impossible": {**self.impossible},
        }


def advise(runs: Sequence[AcquisitionRun], *, needed: AcquisitionRun | None = None) -> Advice:
    """Loads the models of each way, one after the other, and says which way fits.

    Args:
        runs: an acquisition in each way that is looked at, on the same data. The models of the last one stay loaded.
        needed: the one that will be trained, if any.

    Raises:
        BabelensError: if `needed` cannot be loaded, or none can.
    """
    ways: dict[Way, WayCosts] = {}
    problems: dict[Way, BabelensError] = {}
    for run in runs:
        try:
            run.load()
            ways[run.way], config = costs(run), run.model.config
        except BabelensError as error:
            if run is needed or (run is runs[-1] and not ways):
                raise
            problems[run.way] = error
        if run is not runs[-1]:
            run.forget()
    impossible = {way: str(error) for way, error in problems.items()}
    way, reason = _recommended(runs[-1].languages, config, ways, impossible)
    return Advice(way, reason, ways, impossible)


def costs(run: AcquisitionRun) -> WayCosts:
    """The costs of an acquisition whose models are loaded. Neither weights nor PyTorch's random numbers change."""
    model = run.model
    model.set_trainable("acquirers", run.languages)
    args = run.arguments(TEXT_TEXT)
    TrainedTowers(model, checked_training(args.towers), seed=args.seed)
    texts = {language: _texts(run, language) for language in run.languages}
    tokenizer = run.processor.multilingual_tokenizer if run.way == "adapter" else run.processor.tokenizer
    language = run.languages[0]
    time = step_time(model, run.processor, language, texts[language], args)
    pairs = [(tag, model.config.native_language) for tag in run.languages]
    return WayCosts(
        trained_parameters=sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        added_parameters=run.added_parameters,
        unknown_rate=max(unknown_rate(tokenizer, mine) for mine in texts.values()),
        pieces_per_word=max(pieces_per_word(tokenizer, mine) for mine in texts.values()),
        steps=run.planned_steps,
        seconds_per_step=time.seconds,
        seconds_once=time.seconds_per_text * len(translation_pairs(run.pairs, pairs)),
        is_measured=time.is_measured,
    )


def _recommended(
    languages: Sequence[str],
    config: PreTrainedConfig,
    ways: Mapping[Way, WayCosts],
    impossible: Mapping[Way, str],
) -> tuple[Way, str]:
    """The way that fits, and why, by the rule of this module.

    Args:
        languages: the languages to acquire.
        config: configuration of the base with room for them, or of a student beside it.
        ways, impossible: as in `Advice`.
    """
    if impossible:
        return next(iter(ways)), f"the {next(iter(impossible))} is not possible"
    if known := [language for language in config.languages if language not in languages]:
        return "adapter", f"the base has acquired {', '.join(known)}, and one more adapter leaves them as they are"
    if len(languages) > 1:
        return "student", f"{len(languages)} languages are learned at once, and an adapter holds one"
    tower = config.base_config.text_config
    # The configuration of a tower whose code comes with the model may call them otherwise.
    blocks, width = (getattr(tower, name, None) for name in ("num_hidden_layers", "hidden_size"))
    small = [f"{blocks} blocks"] if blocks is not None and blocks < FEWEST_BLOCKS else []
    small += [f"width {width}"] if width is not None and width < LEAST_WIDTH else []
    if small:
        return "student", f"the base's text tower is small ({', '.join(small)}), and acquirers work inside of it"
    unknown = {way: each.unknown_rate for way, each in ways.items()}
    if unknown.get("adapter", 0.0) > max(MOST_UNKNOWN, unknown.get("student", 0.0)):
        return "student", f"{unknown['adapter']:.1f} % of the pieces of {languages[0]} are [UNK] in the vocabulary"
    return "adapter", "it trains few parameters, and leaves every language of the base bitwise as it is"


def pieces_per_word(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> float:
    """Returns how many pieces of a vocabulary a word has on the mean."""
    rows = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return sum(map(len, rows)) / max(sum(len(text.split()) for text in texts), 1)


def _texts(run: AcquisitionRun, language: str) -> list[str]:
    """Texts of a language, evenly spread over the translations."""
    view = translation_pairs(run.pairs, [(language, run.model.config.native_language)])
    indices = evenly_spread(len(view), min(len(view), _SAMPLE))
    return [example["text_a"] for example in view.__getitems__(indices)]
