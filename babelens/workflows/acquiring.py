"""Teaching a model one more language: a base model and translations become an adapter, and the model that has it.

The base is a plain dual encoder of any kind or an MLA model with languages already; its embeddings of images and of
the languages that it has stay bitwise what they were. `acquired_model` builds the model, as the recipes of MLA do
(`vocabulary.native_with_vocabulary`); stages are trained as theirs are (`training`).
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from datasets import Dataset
from transformers.utils.peft_utils import find_adapter_config_file

from ..configuration.errors import CorpusError, ModelKindError
from ..configuration.tasks import IMAGE_TEXT, TEXT_TEXT
from ..data.batching.views import translation_pairs
from ..data.corpus.corpus import languages_of
from ..data.corpus.loading import load_captions, load_translations
from ..data.corpus.sampling import evenly_spread
from ..evaluation.retrieval import translation_retrieval
from ..inference.embedder import Embedder
from ..model_cards.adapter_cards import AdapterCardFacts, write_adapter_card
from ..model_cards.base_models import BaseModel, base_model_facts
from ..model_cards.licenses import check_weights_license
from ..modeling.modeling_mla import MlaModel
from ..modeling.peft_mla import MlaAdapterConfig
from ..modeling.peft_mla.conversion import save_adapter
from ..modeling.peft_mla.embedding import save_embedding
from ..processing.processing_mla import MlaProcessor
from ..trainers.arguments import MlaTrainingArguments
from ..trainers.checkpoints import has_checkpoint
from ..trainers.mla import MlaTrainer
from ..trainers.output_lock import is_first_process
from ..trainers.saving import atomic_directory, prepare_saving
from .acquired_model import load_learner
from .acquisition_choices import AcquisitionChoices
from .argument_checks import made_arguments
from .record import RunRecord, corpus_digest
from .training import CHECKPOINTS, train_from_newest_checkpoint

EMBEDDING, MODEL = "embedding", "model"
_HELD_OUT = 1000  # translations at most
# The settings with which a resumed run goes on when they have changed: its weights are in the checkpoint.
_MAY_CHANGE = ("base", "steps", "exposure_steps", *(f"training.{f.name}" for f in fields(MlaTrainingArguments)))
_EXPOSURE_SHARE = 10  # the paper's language exposure has a tenth of the steps of its transfer


@dataclass
class Acquisition(AcquisitionChoices):
    """One acquisition of a language: `load` the base, `run` the training, `save` the adapter.

    After `load`, `model` is the base with room for the language and `processor` its processor.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.model: MlaModel
        self.processor: MlaProcessor

    def load(self) -> None:
        """Loads the base and adds the language to it; sets the seed.

        Raises:
            PublishError: when `license` is freer than the license of the base.
            BabelensError: the errors of `load_learner`.
        """
        self.model, self.processor = load_learner(self, self.corpus)
        check_weights_license(self.license, [self.base_facts])

    # ---- Data ----

    @cached_property
    def corpus(self) -> Dataset:
        """The translations, in whatever languages."""
        return load_translations(self.translations)

    @cached_property
    def pairs(self) -> Dataset:
        """The translations between the language and the native one.

        Raises:
            CorpusError: when one of the two languages has no text.
        """
        native = self.model.config.native_language
        present = languages_of(self.corpus)
        for tag in (self.language, native):
            if tag not in present:
                raise CorpusError(f"{self.translations} has no text in {tag!r}, only in {', '.join(present)}")
        return load_translations(self.translations, languages=[self.language, native], on_incomplete="skip")

    @cached_property
    def split(self) -> tuple[Dataset, Dataset]:
        """Pairs to train on, and a twentieth of them, at most 1000, to evaluate the result on."""
        held_out = min(len(self.pairs) // 20, _HELD_OUT)
        order = np.random.default_rng(0).permutation(len(self.pairs))
        return self.pairs.select(np.sort(order[held_out:])), self.pairs.select(np.sort(order[:held_out]))

    def samples(self, count: int = 3) -> list[tuple[str, str]]:
        """Pairs to show before training, (text, native text), which tell a reader whether the columns are swapped."""
        view = translation_pairs(self.pairs, [(self.language, self.model.config.native_language)])
        indices = evenly_spread(len(view), count)
        return [(example["text_a"], example["text_b"]) for example in view.__getitems__(indices)]

    # ---- Training ----

    def run(self, *, resume: bool = False) -> dict[str, float]:
        """Trains; returns the retrieval of native translations by held-out texts, as `retrieval` does.

        Raises:
            FileExistsError: when `output` holds an adapter, or a run and `resume` was not asked for.
            ChangedRunError: when data or choices are not those that the run to resume began with.
            CorpusError: for captions that cannot be used, or fewer captions or translations than a batch has.
            SaveError: when nothing can be saved to `output`.
        """
        if is_first_process():
            prepare_saving(self.output)
        is_broken_off = has_checkpoint(self.output / CHECKPOINTS / TEXT_TEXT)
        if (self.output / "adapter_config.json").is_file() and not (resume and is_broken_off):
            raise FileExistsError(f"{self.output} holds an adapter already: choose another folder")
        if is_broken_off and not resume:
            raise FileExistsError(f"{self.output} holds a run that broke off: resume it, or choose another folder")
        train, held_out = self.split
        self._check_count(self.translations, len(train))
        captions = None
        if self.captions is not None:
            captions = load_captions(self.captions, languages=[self.language])
            self._check_count(self.captions, languages_of(captions).get(self.language, 0))
        self._compare_or_record(captions, is_broken_off)
        steps = self.transfer_steps(len(train))
        trainer = self._train(TEXT_TEXT, train, max_steps=steps)
        if captions is not None:
            exposure = self.exposure_steps or max(steps // _EXPOSURE_SHARE, 1)
            trainer = self._train(IMAGE_TEXT, captions, max_steps=exposure, learning_rate=self.exposure_rate)
        trainer.accelerator.wait_for_everyone()
        self._precision = str(trainer.args.chosen_precision)
        return self.retrieval(held_out)

    def _compare_or_record(self, captions: Dataset | None, has_run: bool) -> None:
        """Compares a run that goes on with what it began with; keeps what a new one begins with."""
        corpora = {"translations": self.corpus} | ({} if captions is None else {"captions": captions})
        record = RunRecord(self.settings(), {name: corpus_digest(corpus) for name, corpus in corpora.items()})
        if has_run:
            record.check(self.output / CHECKPOINTS, may_change=_MAY_CHANGE.__contains__)
        elif PartialState().is_main_process:
            record.write(self.output / CHECKPOINTS)

    def _check_count(self, source: str, count: int) -> None:
        if count < self.batch_size:
            raise CorpusError(
                f"{source} has {count} texts to train on in {self.language!r}, fewer than a batch of "
                f"{self.batch_size}: bring more, or take smaller batches"
            )

    def _train(self, task: str, corpus: Dataset, **own: Any) -> MlaTrainer:
        defaults: dict[str, Any] = {"save_total_limit": 1, "report_to": "none", "logging_steps": 50}
        given = defaults | self.training | own | {"languages": [self.language]}
        folder = str(self.output / CHECKPOINTS / task)
        args = made_arguments(MlaTrainingArguments, given, "training", output_dir=folder)
        trainer = MlaTrainer(self.model, args, processing_class=self.processor, train_dataset={task: corpus})
        return train_from_newest_checkpoint(trainer)

    def retrieval(self, held_out: Dataset) -> dict[str, float]:
        """The share of held-out texts, in percent, that find their native translation first among all (`r1`) and among
        the first ten (`r10`), with the number of `pairs`; empty without pairs."""
        if not len(held_out):
            return {}
        languages = (self.language, self.model.config.native_language)
        examples: Sequence[dict[str, Any]] = translation_pairs(held_out, [languages])[:]
        texts, natives = ([example[side] for example in examples] for side in ("text_a", "text_b"))
        recalls = translation_retrieval(Embedder(self.model, self.processor), texts, natives, languages=languages)
        return {"pairs": len(examples)} | recalls

    # ---- Output ----

    @cached_property
    def base_facts(self) -> BaseModel:
        """The base with its license."""
        return base_model_facts(self.base)

    @property
    def _base(self) -> str:
        """The base as an adapter names it: a folder by its whole path, which any working directory understands."""
        return str(Path(self.base).resolve()) if Path(self.base).is_dir() else self.base

    @property
    def _embedding(self) -> str:
        """Where the shared embedding is: beside the first language's adapter, then in the base model."""
        if len(self.model.config.languages) == 1:
            return f"./{EMBEDDING}"
        if not find_adapter_config_file(self.base):
            return self._base
        # An adapter of which the embedding is a part has it nowhere by itself.
        embedding = MlaAdapterConfig.from_pretrained(self.base).embedding
        if embedding is None:
            return f"./{EMBEDDING}"
        return str(Path(embedding).resolve()) if Path(embedding).is_dir() else embedding

    def check_assembly(self) -> None:
        """Checks that the whole model can be written into one folder.

        Raises:
            ModelKindError: if the code of the base comes with it, and would have to be published anew.
        """
        native = type(self.model.native_model)
        if not native.__module__.startswith(("transformers.", __name__.partition(".")[0] + ".")):
            raise ModelKindError(
                f"{self.base}: the code of {native.__name__} comes with this model, and is not copied into an "
                "assembled one: save the adapter alone (without --assemble), which names its base"
            )

    def assemble(self) -> Path:
        """Writes the whole model with its processor into `output/model`, for `AutoModel.from_pretrained`.

        Raises:
            ModelKindError: as `check_assembly`.
        """
        self.check_assembly()
        folder = self.output / MODEL
        if PartialState().is_main_process:
            with atomic_directory(folder) as scratch:
                self.model.save_pretrained(scratch)
                self.processor.save_pretrained(scratch)
        return folder

    def save(self, results: dict[str, float], command: str) -> None:
        """Writes the adapter with its card, and removes the checkpoints.

        Args:
            results: of `run`.
            command: that was typed.
        """
        if not PartialState().is_main_process:
            return
        with atomic_directory(self.output) as scratch:
            if self._embedding.startswith("./"):
                save_embedding(self.model, scratch / EMBEDDING)
                self.processor.multilingual_tokenizer.save_pretrained(scratch / EMBEDDING)
            save_adapter(self.model, self.language, scratch, embedding=self._embedding, base_model=self._base)
            write_adapter_card(scratch, self._facts(results, command))
        shutil.rmtree(self.output / CHECKPOINTS)

    def _facts(self, results: dict[str, float], command: str) -> AdapterCardFacts:
        config = self.model.config
        return AdapterCardFacts(
            name=self.output.resolve().name,
            language=self.language,
            native_language=config.native_language,
            base_model=self._base,
            on_mla=len(config.languages) > 1,
            parameters=sum(parameter.numel() for parameter in self.model.acquirer_parameters([self.language])),
            trained_embedding=config.train_embedding,
            embedding=self._embedding.removeprefix("./"),
            max_text_length=self.processor.max_text_length,
            pairs=len(self.split[0]),
            exposed=self.captions is not None,
            results=results,
            command=command,
            precision=self._precision,
            license=self.license,
            base=self.base_facts,
        )
