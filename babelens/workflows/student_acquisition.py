"""Teaching a model languages by a student: a multilingual text encoder beside the frozen model learns to put texts
where that model puts their translations (MKD, Zhang et al. 2022, table 7; Multilingual-CLIP).

The result is a whole model. Images, and by default texts in the native language, are embedded by the base alone, so
that these embeddings stay bitwise what they were.
"""

import shutil
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from accelerate import PartialState
from datasets import Dataset
from transformers import AutoTokenizer, set_seed

from ..configuration.errors import ModelKindError, TrainingSetupError
from ..configuration.pretrained import load_processor
from ..inference.loading import load_dual_encoder
from ..model_cards.base_models import TEXT_TOWER, BaseModel, base_model_facts
from ..model_cards.licenses import check_weights_license
from ..model_cards.short_cards import StudentCardFacts, write_short_card
from ..modeling.modeling_mla import MlaModel
from ..modeling.modeling_mla_student import MlaStudentModel
from ..processing.processing_mla_student import MlaStudentProcessor
from ..trainers.arguments import MlaTrainingArguments
from ..trainers.checkpoints import atomic_directory
from ..trainers.closed_starts import solve_projection
from .acquisition_choices import ONLY_OF_ADAPTERS, AcquisitionChoices, Way
from .acquisition_run import AcquisitionRun
from .training import CHECKPOINTS


def load_student(choices: AcquisitionChoices) -> tuple[MlaStudentModel, MlaStudentProcessor]:
    """Loads the base and the text encoder as a student that is about to learn; sets the seed, on which new weights
    depend.

    Raises:
        ModelFolderError: for a folder that holds no such model, or a damaged one.
        ModelKindError: for a base that is no dual encoder, and for a text encoder of the wrong kind.
        TrainingSetupError: for a base that has acquired languages already.
    """
    native, native_processor = load_dual_encoder(choices.base, as_stored=True, **choices.code)
    set_seed(choices.seed)
    if isinstance(native, MlaModel | MlaStudentModel):
        raise TrainingSetupError(
            f"{choices.base} has acquired {', '.join(native.config.languages) or 'languages'} already, which a new "
            "student would not read: take the plain model as the base"
            + (", or add an adapter (--way adapter)" if isinstance(native, MlaModel) else "")
        )
    if not (hasattr(native, "get_text_features") and hasattr(native, "get_image_features")):
        raise ModelKindError(f"{choices.base} is a {native.config.model_type!r} model, and no dual encoder")
    native_language = choices.native_language or "en"
    if native_language in choices.languages:
        raise TrainingSetupError(f"{choices.base} has the language {native_language!r} already")
    model = MlaStudentModel.from_towers(
        native,
        str(choices.text_encoder),
        text_pooling=choices.pooling,
        text_prompt=choices.text_prompt,
        freeze=("text",) if choices.freeze_encoder or choices.train_layers else (),
        trust_remote_code=choices.trust_remote_code,
        languages=choices.languages,
        native_language=native_language,
        native_texts=choices.native_texts or "native",
    )
    tokenizer = load_processor(AutoTokenizer, str(choices.text_encoder), **choices.code)
    return model, MlaStudentProcessor.for_student(model.config, native_processor, tokenizer)


@dataclass
class StudentAcquisition(AcquisitionRun):
    """One acquisition by a student: `load` the models, `run` the training, `save` the whole model.

    After `load`, `model` is the student beside the base and `processor` its processor.

    Raises:
        TrainingSetupError: without a text encoder, and for choices of an adapter.
    """

    way: ClassVar[Way] = "student"
    result: ClassVar[str] = "a model"
    result_file: ClassVar[str] = "config.json"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text_encoder is None:
            raise TrainingSetupError(
                "a student needs a multilingual text encoder: name one with --text-encoder, such as "
                "intfloat/multilingual-e5-small"
            )
        if given := self.given(ONLY_OF_ADAPTERS):
            raise TrainingSetupError(f"{self.as_given(given)}: only an adapter (--way adapter) has such a choice")
        self.model: MlaStudentModel
        self.processor: MlaStudentProcessor

    def load(self) -> None:
        """Loads base and text encoder; sets the seed.

        Raises:
            PublishError: when `license` is freer than the license of the base or of the text encoder.
            BabelensError: the errors of `load_student`.
        """
        self.model, self.processor = load_student(self)
        check_weights_license(self.license, [self.base_facts, self.encoder_facts])

    def arguments(self, task: str, **own: Any) -> MlaTrainingArguments:
        """As in `AcquisitionRun`, with the layers of the text encoder that are trained."""
        if self.train_layers is not None:
            own = {"towers": {"text": {"train": "upper", "layers": self.train_layers}}} | own
        return super().arguments(task, **own)

    @cached_property
    def base_facts(self) -> BaseModel:
        """The base with its license."""
        return base_model_facts(self.base)

    @cached_property
    def encoder_facts(self) -> BaseModel:
        """The text encoder with its license."""
        return base_model_facts(str(self.text_encoder), TEXT_TOWER)

    def start(self, train: Dataset) -> None:
        """Sets the projection to what can be solved for: the whole training, without steps."""
        pairs = {language: self.sides(language, train) for language in self.languages}
        native = self.model.config.native_language
        if native in self.model.config.learned_languages:
            texts = list(dict.fromkeys(text for _, natives in pairs.values() for text in natives))
            pairs[native] = texts, texts
        solve_projection(self.model, self.processor, pairs, precision=self.precision_on(self.model.device.type))

    def retrieval(self, held_out: Dataset) -> dict[str, Any]:
        """As `retrieval_in`, by language."""
        return {language: self.retrieval_in(language, held_out) for language in self.languages}

    def save(self, results: dict[str, Any], command: str) -> None:
        """Writes the model with its processor and its card, and removes the checkpoints.

        Args:
            results: of `run`.
            command: that was typed.
        """
        if not PartialState().is_main_process:
            return
        with atomic_directory(self.output) as scratch:
            self.model.save_pretrained(scratch)
            self.processor.save_pretrained(scratch)
            write_short_card(scratch, self._facts(results, command))
            self.write_recipe(scratch)
        shutil.rmtree(self.output / CHECKPOINTS)

    def _facts(self, results: dict[str, Any], command: str) -> StudentCardFacts:
        parts, config = self.model.parameter_parts(), self.model.config
        return StudentCardFacts(
            name=self.output.resolve().name,
            languages=self.languages,
            native_language=config.native_language,
            base=self.base_facts,
            text_encoder=self.encoder_facts,
            strategy=config.strategy,
            trained_layers=self.train_layers,
            keeps_native=config.native_texts == "native",
            parameters=sum(parts.values()),
            trained_parameters=sum(p.numel() for p in self.model.parameters() if p.requires_grad),
            pairs=self.split[0].num_rows,
            exposed=self.captions is not None,
            results={language: numbers for language, numbers in results.items() if numbers},
            command=command,
            precision=self._precision,
            license=self.license,
        )
