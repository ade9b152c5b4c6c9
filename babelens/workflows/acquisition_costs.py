"""What it costs to train an adapter or a student, measured before the training."""

import copy
import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..configuration.strict_config import TEXT_TEXT
from ..data.batching.views import translation_pairs
from ..data.corpus.sampling import evenly_spread
from ..processing.tokenizer_training import unknown_rate
from ..trainers.mla import MlaTrainer
from .acquisition_choices import WayCosts
from .acquisition_run import AcquisitionRun
from .time_budget import QUIET, StepTimer, timed_training, without_log

_SAMPLE = 1000  # texts of each language at most, by which a vocabulary is judged
_FEW = 8  # pairs of a first step, which tells how long a whole one takes
_LONGEST_STEP = 5.0  # seconds; of a longer one, the time is estimated
_READ_ONCE = 256  # pairs by which the time of reading all of them once is estimated


def costs(run: AcquisitionRun) -> WayCosts:
    """The costs of an acquisition whose models are loaded. Neither weights nor PyTorch's random numbers change."""
    texts = {language: _texts(run, language) for language in run.languages}
    tokenizer = run.processor.multilingual_tokenizer if run.way == "adapter" else run.processor.tokenizer
    timer, per_pair = _timed(run, _FEW, _READ_ONCE)
    seconds = timer.seconds_per_step * max(run.batch_size / _FEW, 1)
    is_measured = seconds <= _LONGEST_STEP
    if is_measured:
        seconds = _timed(run, run.batch_size, run.batch_size)[0].seconds_per_step
    pairs = [(tag, run.model.config.native_language) for tag in run.languages]
    return WayCosts(
        trained_parameters=timer.trained_parameters,
        added_parameters=run.added_parameters,
        unknown_rate=max(unknown_rate(tokenizer, mine) for mine in texts.values()),
        pieces_per_word=max(pieces_per_word(tokenizer, mine) for mine in texts.values()),
        steps=run.planned_steps,
        seconds_per_step=seconds,
        seconds_once=per_pair * len(translation_pairs(run.pairs, pairs)),
        is_measured=is_measured,
    )


def _timed(run: AcquisitionRun, batch_size: int, count: int) -> tuple[StepTimer, float]:
    """Times the steps of a copy of the model, on pairs of the first language, which are repeated where they are few.

    Returns:
        The timer, and the seconds for each pair before the first step: what frozen parts give is computed once.
    """
    language = run.languages[0]
    rows = np.unique(translation_pairs(run.pairs, [(language, run.model.config.native_language)]).rows)[:count]
    pairs = run.pairs.select(np.resize(rows, max(count, batch_size)))
    args = run.arguments(TEXT_TEXT, **QUIET, per_device_train_batch_size=batch_size, max_steps=4)
    args.languages = [language]
    with TemporaryDirectory() as folder, torch.random.fork_rng(), without_log():
        args.output_dir, began = folder, time.perf_counter()
        trainer = MlaTrainer(
            copy.deepcopy(run.model),
            args,
            processing_class=run.processor,
            train_dataset={TEXT_TEXT: pairs},
            cache_dir=folder,
        )
        once = (time.perf_counter() - began) / len(rows)
        return timed_training(trainer, untimed=1, fewest=2, seconds=0.0), once


def pieces_per_word(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> float:
    """Returns how many pieces of a vocabulary a word has on the mean."""
    rows = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return sum(map(len, rows)) / max(sum(len(text.split()) for text in texts), 1)


def _texts(run: AcquisitionRun, language: str) -> list[str]:
    """Texts of a language, evenly spread over the translations."""
    view = translation_pairs(run.pairs, [(language, run.model.config.native_language)])
    indices = evenly_spread(len(view), min(len(view), _SAMPLE))
    return [example["text_a"] for example in view.__getitems__(indices)]
