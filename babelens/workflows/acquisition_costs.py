"""What it costs to train an adapter or a student, measured before the training."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from ..configuration.strict_config import TEXT_TEXT
from ..data.batching.views import translation_pairs
from ..data.corpus.sampling import evenly_spread
from ..processing.tokenizer_training import unknown_rate
from ..trainers.tower_training import TrainedTowers, checked_training
from .acquisition_choices import WayCosts
from .acquisition_run import AcquisitionRun
from .time_budget import step_time

_SAMPLE = 1000  # texts of each language at most, by which a vocabulary is judged


def costs(run: AcquisitionRun) -> WayCosts:
    """The costs of an acquisition whose models are loaded. Neither weights nor PyTorch's random numbers change."""
    model = run.model
    model.set_trainable("acquirers", run.languages)
    args = run.arguments(TEXT_TEXT)
    towers = TrainedTowers(model, checked_training(args.towers), seed=args.seed)
    texts = {language: _texts(run, language) for language in run.languages}
    tokenizer = run.processor.multilingual_tokenizer if run.way == "adapter" else run.processor.tokenizer
    language = run.languages[0]
    time = step_time(model, run.processor, language, texts[language], args)
    pairs = [(tag, model.config.native_language) for tag in run.languages]
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    towers.remove_adapters()  # the trainer places its own
    return WayCosts(
        trained_parameters=trained,
        added_parameters=run.added_parameters,
        unknown_rate=max(unknown_rate(tokenizer, mine) for mine in texts.values()),
        pieces_per_word=max(pieces_per_word(tokenizer, mine) for mine in texts.values()),
        steps=run.planned_steps,
        seconds_per_step=time.seconds,
        seconds_once=time.seconds_per_text * len(translation_pairs(run.pairs, pairs)),
        is_measured=time.is_measured,
    )


def pieces_per_word(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> float:
    """Returns how many pieces of a vocabulary a word has on the mean."""
    rows = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return sum(map(len, rows)) / max(sum(len(text.split()) for text in texts), 1)


def _texts(run: AcquisitionRun, language: str) -> list[str]:
    """Texts of a language, evenly spread over the translations."""
    view = translation_pairs(run.pairs, [(language, run.model.config.native_language)])
    indices = evenly_spread(len(view), min(len(view), _SAMPLE))
    return [example["text_a"] for example in view.__getitems__(indices)]
