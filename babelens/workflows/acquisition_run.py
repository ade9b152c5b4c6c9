"""What the ways to teach a model a language share: the data, the stages of training with their checkpoints, and the
evaluation on held-out translations. `acquiring` makes an adapter, and `student_acquisition` a student."""

import copy
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ..configuration.errors import CorpusError
from ..configuration.locks import is_first_process
from ..configuration.strict_config import IMAGE_TEXT, TEXT_TEXT
from ..data.batching.views import translation_pairs
from ..data.corpus.corpus import languages_of
from ..data.corpus.loading import load_captions
from ..data.corpus.overlap import distinct_rows, shared_texts
from ..data.corpus.sampling import evenly_spread
from ..data.readers.bitext import read_translations
from ..evaluation.retrieval import translation_retrieval
from ..inference.embedder import Embedder
from ..modeling.modeling_mla import MlaModel
from ..modeling.modeling_mla_student import MlaStudentModel
from ..processing.processing_mla import MlaProcessor
from ..processing.processing_mla_student import MlaStudentProcessor
from ..processing.tokenizer_training import unknown_rate
from ..trainers.arguments import MlaTrainingArguments
from ..trainers.checkpoints import has_checkpoint, prepare_saving
from ..trainers.mla import MlaTrainer
from .acquisition_choices import AcquisitionChoices, WayCosts
from .argument_checks import made_arguments
from .data import RECORD, RunRecord, corpus_digest
from .time_budget import QUIET, StepTimer, timed_training, without_log
from .training import CHECKPOINTS, train_from_newest_checkpoint

logger = logging.getLogger(__name__)

_LEAST_HELD_OUT, _HELD_OUT = 100, 1000  # translations
_PASSES, _FEWEST_STEPS, _PAPER_STEPS = 20, 500, 117_150
_SMALLEST_BATCH = 32  # unless another was chosen
# The settings with which a resumed run goes on when they have changed: its weights are in the checkpoint.
_MAY_CHANGE = ("base", "steps", "exposure_steps", *(f"training.{f.name}" for f in fields(MlaTrainingArguments)))
_OTHERS = 5000  # native texts beside those of held-out translations, among which these are to be found
_EXPOSURE_SHARE = 10  # the paper's language exposure has a tenth of the steps of its transfer


@dataclass
class AcquisitionRun(AcquisitionChoices):
    """One acquisition: `load` the base, `run` the training, `save` the result.

    After `load`, `model` is the model that learns and `processor` its processor. Subclasses define `load`, `retrieval`
    and `save`.

    Args:
        minutes: of training on translations, without `steps`.
        keep: what is saved: the `better` of what was trained and the closed form, by held-out translations; or what
            was `trained`, without a comparison.
    """

    minutes: float = 5.0
    keep: Literal["better", "trained"] = "better"
    # What `save` writes, and a file that only a saved result has.
    result: ClassVar[str]
    result_file: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.model: MlaModel | MlaStudentModel
        self.processor: MlaProcessor | MlaStudentProcessor

    def load(self) -> None:
        """Loads the models; sets the seed."""
        raise NotImplementedError

    def forget(self) -> None:
        """Lets go of the models."""
        vars(self).pop("model", None)
        vars(self).pop("processor", None)

    @property
    def added_parameters(self) -> int:
        """The number of parameters that the result has beside those of the base."""
        parts = self.model.parameter_parts()
        return sum(parts.values()) - parts["native model"]

    # ---- Data ----

    @cached_property
    def corpus(self) -> Dataset:
        """The translations, in whatever languages."""
        return read_translations(self.translations)

    @cached_property
    def pairs(self) -> Dataset:
        """The translations between the languages and the native one, each once.

        Raises:
            CorpusError: when one of them has no text.
        """
        native = self.model.config.native_language
        present = languages_of(self.corpus)
        for tag in (*self.languages, native):
            if tag not in present:
                raise self.absent(tag, present)
        languages = [*self.languages, native]
        return distinct_rows(read_translations(self.translations, languages=languages, on_incomplete="skip"))

    @cached_property
    def split(self) -> tuple[Dataset, Dataset]:
        """Pairs to train on, and a twentieth of them to evaluate the result on: at least 100, or a tenth of few, and
        at most 1000."""
        count = len(self.pairs)
        held_out = min(max(count // 20, min(count // 10, _LEAST_HELD_OUT)), _HELD_OUT)
        order = np.random.default_rng(0).permutation(len(self.pairs))
        return self.pairs.select(np.sort(order[held_out:])), self.pairs.select(np.sort(order[:held_out]))

    @cached_property
    def batch_size(self) -> int:
        """As chosen; by default as the trainer has it, or smaller where a language has fewer translations, but not so
        small that a few rows of one language would decide about all."""
        chosen: int | None = self.training.get("per_device_train_batch_size")
        if chosen is not None:
            return chosen
        counts = languages_of(self.split[0])
        fewest = min((counts[each] for each in self.languages if each in counts), default=0)
        usual = MlaTrainingArguments.per_device_train_batch_size
        size = min(max(fewest, _SMALLEST_BATCH), usual)
        if size < usual:
            logger.info("batches of %s texts, since one language has no more (usually %s)", size, usual)
        return size

    def samples(self, language: str, count: int = 3) -> list[tuple[str, str]]:
        """Pairs to show before training, (text, native text), which tell a reader whether the columns are swapped."""
        view = translation_pairs(self.pairs, [(language, self.model.config.native_language)])
        indices = evenly_spread(len(view), count)
        return [(example["text_a"], example["text_b"]) for example in view.__getitems__(indices)]

    @property
    def planned_steps(self) -> int:
        """The steps of training on translations, of which there are as many as rows with each language."""
        pairs = [(language, self.model.config.native_language) for language in self.languages]
        texts = sum(len(np.unique(translation_pairs(self.split[0], [pair]).rows)) for pair in pairs)
        return self.steps or min(max(_PASSES * texts // self.batch_size, _FEWEST_STEPS), _PAPER_STEPS)

    def fit_into_minutes(self, cost: WayCosts, *, resume: bool = False) -> None:
        """Takes no more steps than fit into the minutes, unless their number was chosen.

        Args:
            cost: of `costs`.
            resume: whether a run goes on, which keeps the number that it began with.
        """
        if self.steps is not None:
            return
        record = self.output / CHECKPOINTS / RECORD
        if resume and record.is_file():
            self.steps = json.loads(record.read_text(encoding="utf-8"))["settings"].get("steps")
            return
        fitting = int((60 * self.minutes - cost.seconds_once) / cost.seconds_per_step)
        if fitting < cost.steps:
            self.steps = max(fitting, 1)

    # ---- Training ----

    def run(self, *, resume: bool = False) -> dict[str, Any]:
        """Trains; returns the retrieval of native translations by held-out texts, as `retrieval` does.

        Raises:
            FileExistsError: when `output` holds a result, or a run and `resume` was not asked for.
            ChangedRunError: when data or choices are not those that the run to resume began with.
            CorpusError: for captions that cannot be used, or fewer captions or translations than a batch has.
            SaveError: when nothing can be saved to `output`.
        """
        if is_first_process():
            prepare_saving(self.output)
        is_broken_off = has_checkpoint(self.output / CHECKPOINTS / TEXT_TEXT)
        if (self.output / self.result_file).is_file() and not (resume and is_broken_off):
            raise FileExistsError(f"{self.output} holds {self.result} already: choose another folder")
        if is_broken_off and not resume:
            raise FileExistsError(f"{self.output} holds a run that broke off: resume it, or choose another folder")
        train, held_out = self.split
        self._check_count(self.translations, languages_of(train))
        captions = None
        if self.captions is not None:
            captions = load_captions(self.captions, languages=self.languages)
            self._check_count(self.captions, languages_of(captions))
        self._compare_or_record(captions, is_broken_off)
        steps = self.planned_steps
        if not is_broken_off:
            self.start(train)
        trainer = self._train(TEXT_TEXT, train, max_steps=steps)
        if captions is not None:
            exposure = self.exposure_steps or max(steps // _EXPOSURE_SHARE, 1)
            trainer = self._train(IMAGE_TEXT, captions, max_steps=exposure, learning_rate=self.exposure_rate)
        trainer.accelerator.wait_for_everyone()
        self._precision = str(trainer.args.chosen_precision)
        return self.retrieval(held_out)

    def start(self, train: Dataset) -> None:
        """Sets weights before the training to what can be computed from the translations."""

    def _compare_or_record(self, captions: Dataset | None, has_run: bool) -> None:
        """Compares a resumed run with what it began with; records what a new one begins with."""
        record = self._record(captions)
        folder = self.output / CHECKPOINTS
        if has_run:
            record.check(folder, may_change=_MAY_CHANGE.__contains__)
        elif PartialState().is_main_process:
            record.write(folder)

    def _record(self, captions: Dataset | None) -> RunRecord:
        corpora = {"translations": self.corpus} | ({} if captions is None else {"captions": captions})
        return RunRecord(self.settings(), {name: corpus_digest(corpus) for name, corpus in corpora.items()})

    def _check_count(self, source: str, counts: Mapping[str, int]) -> None:
        for language in self.languages:
            if counts.get(language, 0) < self.batch_size:
                raise CorpusError(
                    f"{source} has {counts.get(language, 0)} texts to train on in {language!r}, fewer than a batch of "
                    f"{self.batch_size}: bring more, or take smaller batches"
                )

    def arguments(self, task: str, **own: Any) -> MlaTrainingArguments:
        """The arguments of the trainer of a task; `own` are those that differ from what was chosen."""
        defaults: dict[str, Any] = {"save_total_limit": 1, "report_to": "none", "logging_steps": 50}
        defaults["per_device_train_batch_size"] = self.batch_size
        given = defaults | self.training | own | {"languages": self.languages}
        return made_arguments(
            MlaTrainingArguments, given, "training", output_dir=str(self.output / CHECKPOINTS / task)
        )

    def _train(self, task: str, corpus: Dataset, **own: Any) -> MlaTrainer:
        args = self.arguments(task, **own)
        trainer = MlaTrainer(self.model, args, processing_class=self.processor, train_dataset={task: corpus})
        return train_from_newest_checkpoint(trainer)

    def retrieval(self, held_out: Dataset) -> dict[str, Any]:
        """How well held-out texts find their native translations."""
        raise NotImplementedError

    def sides(self, language: str, rows: Dataset) -> tuple[list[str], list[str]]:
        """The texts of a language in some rows, and the native translation of each."""
        view = translation_pairs(rows, [(language, self.model.config.native_language)]) if len(rows) else []
        examples: Sequence[dict[str, Any]] = view[:] if len(view) else []
        return [each["text_a"] for each in examples], [each["text_b"] for each in examples]

    def others(self, language: str) -> list[str]:
        """Native texts of training among which those of held-out translations are to be found."""
        return self.sides(language, self.split[0])[1][:_OTHERS]

    def retrieval_in(self, language: str, held_out: Dataset) -> dict[str, float]:
        """The share of held-out texts, in percent, that find their native translation first among the native texts of
        all translations (`r1`) and among the first ten (`r10`), with the number of `pairs`, and where it matters of
        those whose text has been trained on with another translation (`shared`); empty without pairs."""
        texts, natives = self.sides(language, held_out)
        if not texts:
            return {}
        languages = (language, self.model.config.native_language)
        embedder = Embedder(self.model, self.processor)
        recalls = translation_retrieval(embedder, texts, natives, languages=languages, others=self.others(language))
        found = {"pairs": len(texts)} | recalls
        overlap = shared_texts(texts, self.sides(language, self.split[0])[0])
        if overlap.is_notable:
            logger.warning("%s: %s", language, overlap)
            found["shared"] = overlap.same + (overlap.alike or 0)
        return found


# ---- What it costs to train an adapter or a student, measured before the training ----

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
