"""Teaching a model one more language: a base model and translations become an adapter, and the model that has it.

The base is a plain dual encoder (CLIP, SigLIP, ALIGN, MURAL) or an MLA model with languages already; whatever it knows
stays bitwise what it was.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import (
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    set_seed,
)
from transformers.utils.peft_utils import find_adapter_config_file

from ..configuration.defaults import M_BERT
from ..configuration.errors import CorpusError, ModelFolderError, RecipeError, TrainingSetupError, VocabularyError
from ..configuration.languages import normalize_language
from ..configuration.pretrained import load_processor
from ..configuration.tasks import IMAGE_TEXT, TEXT_TEXT
from ..data.batching.views import translation_pairs
from ..data.corpus.corpus import captions_of, languages_of
from ..data.corpus.loading import load_captions, load_translations
from ..evaluation.retrieval import translation_retrieval
from ..inference.embedder import Embedder, load_dual_encoder
from ..model_cards.adapter_cards import AdapterCardFacts, write_adapter_card
from ..model_cards.licenses import check_hub_license
from ..modeling.acquirer import text_tower
from ..modeling.modeling_mla import MlaModel
from ..modeling.peft_mla import MlaAdapterConfig
from ..modeling.peft_mla.peft_mla_conversion import save_adapter
from ..modeling.peft_mla.peft_mla_embedding import save_embedding
from ..processing.processing_mla import MlaProcessor
from ..processing.tokenizer_training import train_wordpiece
from ..trainers.arguments import MlaTrainingArguments
from ..trainers.checkpoints import has_checkpoint, newest_checkpoint
from ..trainers.mla import MlaTrainer
from ..trainers.output_lock import is_first_process
from ..trainers.saving import prepare_saving, written_whole
from .argument_checks import check_arguments
from .record import RunRecord, corpus_digest, flattened
from .vocabulary import pretrained_table

EMBEDDING, MODEL, CHECKPOINTS = "embedding", "model", "checkpoints"
_HELD_OUT = 1000  # translations at most
_FIRST_LANGUAGE_CHOICES = ("native_language", "vocabulary", "new_vocabulary", "acquirer", "acquirer_size")
_PASSES, _FEWEST_STEPS, _PAPER_STEPS = 20, 500, 117_150
# What a run that is resumed goes on with when it has changed: its weights are in the checkpoint.
_MAY_CHANGE = ("base", "steps", "exposure_steps", *(f"training.{f.name}" for f in fields(MlaTrainingArguments)))
_EXPOSURE_SHARE = 10  # the paper's language exposure has a tenth of the steps of its transfer


@dataclass
class Acquisition:
    """What to learn, and from what.

    Args:
        base: folder or Hub id of the model that learns.
        language: to acquire.
        translations: what `load_translations` takes; pairs of `language` and the native language.
        output: the adapter's folder.
        captions: what `load_captions` takes; images with captions in `language`, for language exposure.
        native_language: what a plain base model reads; default: English. For a plain base model only, as are the
            following four: a model that has acquired languages has settled them.
        vocabulary: folder or Hub id of a model or a tokenizer: the acquired languages' vocabulary, and first values of
            its table; default: M-BERT's.
        new_vocabulary: train a vocabulary of that many word pieces on the translations instead.
        acquirer: `mlp` (default) or `linear`.
        acquirer_size: width of the hidden layer of `mlp`; default: 256.
        train_embedding: whether the table that the languages share is trained. By default it is while the model has no
            other language, and frozen as soon as one depends on it.
        steps: of native language transfer; by default 20 passes over the translations, at least 500 and at most the
            paper's 117 150.
        exposure_steps: of language exposure; by default a tenth of that.
        license: of the adapter, a Hub identifier.
        trust_remote_code: run code that comes with `base` or `vocabulary`.
        training: further arguments of `MlaTrainingArguments`.
    """

    base: str
    language: str
    translations: str
    output: Path
    captions: str | None = None
    native_language: str | None = None
    vocabulary: str | None = None
    new_vocabulary: int | None = None
    acquirer: str | None = None
    acquirer_size: int | None = None
    train_embedding: bool | None = None
    steps: int | None = None
    exposure_steps: int | None = None
    license: str = "other"
    trust_remote_code: bool = False
    training: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.language = normalize_language(self.language)
        self.output = Path(self.output)
        if self.native_language is not None:
            self.native_language = normalize_language(self.native_language)
        check_hub_license(self.license)
        for name in ("new_vocabulary", "acquirer_size", "steps", "exposure_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise TrainingSetupError(f"{name}={value} must be at least 1")
        if self.vocabulary is not None and self.new_vocabulary is not None:
            raise TrainingSetupError(
                f"vocabulary={self.vocabulary} and new_vocabulary={self.new_vocabulary}: one of them can be taken"
            )
        if self.exposure_steps is not None and self.captions is None:
            raise TrainingSetupError(
                f"exposure_steps={self.exposure_steps} is for language exposure, which takes captions"
            )
        try:
            check_arguments(MlaTrainingArguments, self.training, "training")
        except RecipeError as error:
            raise TrainingSetupError(str(error).replace("training.", "", 1)) from error

    # ---- Data ----

    @cached_property
    def corpus(self) -> Dataset:
        """The translations, in whatever languages."""
        return load_translations(self.translations)

    @cached_property
    def pairs(self) -> Dataset:
        """The translations between the language and the native one.

        Raises:
            CorpusError: when there are none, or too few.
        """
        native = self.model.config.native_language
        present = languages_of(self.corpus)
        for tag in (self.language, native):
            if tag not in present:
                raise CorpusError(f"{self.translations} has no text in {tag!r}, only in {', '.join(present)}")
        return load_translations(self.translations, languages=[self.language, native], on_incomplete="skip")

    @cached_property
    def split(self) -> tuple[Dataset, Dataset]:
        """Pairs to train on, and a twentieth of them, at most 1000, to try the result on."""
        held_out = min(len(self.pairs) // 20, _HELD_OUT)
        order = np.random.default_rng(0).permutation(len(self.pairs))
        return self.pairs.select(np.sort(order[held_out:])), self.pairs.select(np.sort(order[:held_out]))

    def samples(self, count: int = 3) -> list[tuple[str, str]]:
        """Pairs to show before training, (text, native text), which tell a reader whether the columns are swapped."""
        view = translation_pairs(self.pairs, [(self.language, self.model.config.native_language)])
        places = np.linspace(0, len(view) - 1, min(count, len(view)), dtype=int)
        return [(example["text_a"], example["text_b"]) for example in view.__getitems__(places.tolist())]

    # ---- Model ----

    @property
    def model(self) -> MlaModel:
        return self._parts[0]

    @property
    def processor(self) -> MlaProcessor:
        return self._parts[1]

    @cached_property
    def _parts(self) -> tuple[MlaModel, MlaProcessor]:
        """The model with room for the language, and its processor.

        Raises:
            ModelKindError: for a base model whose text tower is not known.
            TrainingSetupError: for a language that it knows already.
            TrainingSetupError: when the shared embedding is to be trained and other languages depend on it.
            TrainingSetupError: for a choice that only the first language has.
            VocabularyError: for a vocabulary that cannot serve.
        """
        model, processor = load_dual_encoder(self.base, dtype=torch.float32, **self._code)
        set_seed(self.training.get("seed", 42))
        if isinstance(model, MlaModel):
            self._refuse_what_is_settled()
        else:
            model, processor = self._wrapped(model, processor)
        if self.language in model.config.known_languages:
            known = ", ".join(model.config.known_languages)
            raise TrainingSetupError(f"{self.base} knows {self.language!r} already; it knows {known}")
        if self.train_embedding and model.config.languages:
            raise TrainingSetupError(
                f"{', '.join(model.config.languages)} depend on the embedding of {self.base}: training it for "
                f"{self.language!r} would change what they read. Recipes train several languages together"
            )
        model.config.train_embedding = self.train_embedding is not False and not model.config.languages
        model.add_language(self.language)
        processor.languages = list(model.config.languages)
        return model, processor

    def _refuse_what_is_settled(self) -> None:
        given = [name for name in _FIRST_LANGUAGE_CHOICES if getattr(self, name) is not None]
        if given:
            raise TrainingSetupError(
                f"{', '.join(given)}: {self.base} has acquired languages already, and with the first of them settled "
                "its vocabulary and its acquirers; leave these options out"
            )

    def _wrapped(self, native: PreTrainedModel, processor: ProcessorMixin) -> tuple[MlaModel, MlaProcessor]:
        text_tower(native.config.model_type)  # refuses what is not known, before anything else is fetched
        tokenizer = self._tokenizer()
        native_language = self.native_language or "en"
        wrapped = MlaProcessor.for_native(native.config, processor, tokenizer, native_language=native_language)
        table = self._table(tokenizer, native.config.text_config.hidden_size)
        model = MlaModel.from_native(
            native,
            native_language=native_language,
            acquirer=self.acquirer or "mlp",
            acquirer_size=self.acquirer_size or 256,
            vocab_size=len(table),
            embedding_size=table.shape[1],
            sep_token_id=tokenizer.sep_token_id,
        )
        with torch.no_grad():
            model.embedding.mla_embedding.table.weight.copy_(table)
        return model, wrapped

    @property
    def _vocabulary(self) -> str:
        return self.vocabulary or M_BERT

    @property
    def _code(self) -> dict[str, bool]:
        return {"trust_remote_code": self.trust_remote_code}

    @contextmanager
    def _default_named(self) -> Iterator[None]:
        """An error about a vocabulary that nobody named says what it is for, and what to name instead."""
        try:
            yield
        except ModelFolderError as error:
            if self.vocabulary is not None:
                raise
            raise ModelFolderError(
                f"the vocabulary of acquired languages is by default that of {M_BERT}, which cannot be loaded: "
                f"{error}. Name another one (--vocabulary), or train one (--new-vocabulary)"
            ) from error

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        """The multilingual tokenizer."""
        if self.new_vocabulary is None:
            with self._default_named():
                return load_processor(AutoTokenizer, self._vocabulary, **self._code)
        texts = captions_of(self.corpus).combine_chunks().flatten().field("text").to_pylist()
        try:
            return train_wordpiece(texts, self.new_vocabulary)
        except ValueError as error:
            raise VocabularyError(f"no vocabulary can be trained on {self.translations}: {error}") from error

    def _table(self, tokenizer: PreTrainedTokenizerBase, width: int) -> torch.Tensor:
        """The first values of the tokenizer's table, [vocabulary, embedding size]: its model's, or new ones."""
        table = None
        if self.new_vocabulary is None:
            with self._default_named():
                table = pretrained_table(self._vocabulary, tokenizer, **self._code)
        if table is not None:
            return table
        generator = torch.Generator().manual_seed(self.training.get("seed", 42))
        return torch.empty(len(tokenizer), width).normal_(std=0.02, generator=generator)

    # ---- Training ----

    def run(self, *, resume: bool = False) -> dict[str, float]:
        """Trains; returns how well held-out texts find their native translations.

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
        steps = self.steps or min(max(_PASSES * len(train) // self._batch_size, _FEWEST_STEPS), _PAPER_STEPS)
        trainer = self._train(TEXT_TEXT, train, max_steps=steps)
        if captions is not None:
            exposure = self.exposure_steps or max(steps // _EXPOSURE_SHARE, 1)
            trainer = self._train(IMAGE_TEXT, captions, max_steps=exposure, learning_rate=self._exposure_rate)
        trainer.accelerator.wait_for_everyone()
        self._precision = str(trainer.args.chosen_precision)
        return self.retrieval(held_out)

    def _compare_or_record(self, captions: Dataset | None, has_run: bool) -> None:
        """Compares a run that goes on with what it began with; keeps what a new one begins with."""
        names = ("base", "language", "native_language", "vocabulary", "new_vocabulary", "acquirer", "acquirer_size")
        settings = {name: getattr(self, name) for name in (*names, "train_embedding", "steps", "exposure_steps")}
        corpora = {"translations": self.corpus} | ({} if captions is None else {"captions": captions})
        data = {name: corpus_digest(corpus) for name, corpus in corpora.items()}
        record = RunRecord(settings | flattened({"training": self.training}), data)
        if has_run:
            record.check(self.output / CHECKPOINTS, may_change=_MAY_CHANGE.__contains__)
        elif PartialState().is_main_process:
            record.write(self.output / CHECKPOINTS)

    def _check_count(self, source: str, count: int) -> None:
        if count < self._batch_size:
            raise CorpusError(
                f"{source} has {count} texts to train on in {self.language!r}, fewer than a batch of "
                f"{self._batch_size}: bring more, or take smaller batches"
            )

    @property
    def _batch_size(self) -> int:
        return self.training.get("per_device_train_batch_size", MlaTrainingArguments.per_device_train_batch_size)

    @property
    def _exposure_rate(self) -> float:
        """3e-6 for the paper's 1e-4 of transfer, and in proportion."""
        return 0.03 * self.training.get("learning_rate", MlaTrainingArguments.learning_rate)

    def _train(self, task: str, corpus: Dataset, **arguments: Any) -> MlaTrainer:
        folder = self.output / CHECKPOINTS / task
        defaults: dict[str, Any] = {"save_total_limit": 1, "report_to": "none", "logging_steps": 50}
        args = MlaTrainingArguments(
            output_dir=str(folder), languages=[self.language], **defaults | self.training | arguments
        )
        trainer = MlaTrainer(
            model=self.model, args=args, processing_class=self.processor, train_dataset={task: corpus}
        )
        newest = newest_checkpoint(folder)
        trainer.train(resume_from_checkpoint=str(newest) if newest else None)
        return trainer

    def retrieval(self, held_out: Dataset) -> dict[str, float]:
        """Of held-out texts, how many per cent find their native translation first among all, and in the first ten."""
        if not len(held_out):
            return {}
        languages = (self.language, self.model.config.native_language)
        examples: Sequence[dict[str, Any]] = translation_pairs(held_out, [languages])[:]
        texts, natives = ([example[side] for example in examples] for side in ("text_a", "text_b"))
        found = translation_retrieval(Embedder(self.model, self.processor), texts, natives, languages=languages)
        return {"pairs": len(examples)} | found

    # ---- Output ----

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

    def assemble(self) -> Path:
        """Writes the whole model with its processor into `output/model`, for `AutoModel.from_pretrained`."""
        folder = self.output / MODEL
        if PartialState().is_main_process:
            with written_whole(folder) as scratch:
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
        with written_whole(self.output) as scratch:
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
        )
