"""Teaching a model one more language by an adapter: a base model and translations become an adapter, and the model
that has it.

The base is a plain dual encoder of any kind or an MLA model with languages already; its embeddings of images and of
the languages that it has stay bitwise what they were. `acquired_model` builds the model, as the recipes of MLA do
(`vocabulary.native_with_vocabulary`); stages are trained as theirs are (`training`).
"""

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from accelerate import PartialState
from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import TRANSFORMERS_DYNAMIC_MODULE_NAME
from transformers.utils.peft_utils import find_adapter_config_file

from ..configuration.errors import ModelKindError, TrainingSetupError
from ..data.emoji.benchmark import NameTranslations
from ..model_cards.base_models import BaseModel, base_model_facts
from ..model_cards.cards import write_card
from ..model_cards.facts import DataSource, ModelCardFacts
from ..model_cards.licenses import check_weights_license
from ..model_cards.short_cards import AdapterCardFacts, write_short_card
from ..modeling.modeling_mla import MlaModel
from ..modeling.peft_mla import MlaAdapterConfig
from ..modeling.peft_mla.conversion import save_adapter
from ..modeling.peft_mla.embedding import save_embedding
from ..processing.processing_mla import MlaProcessor
from ..trainers.checkpoints import atomic_directory
from ..trainers.closed_starts import solve_embedding
from .acquired_model import load_learner
from .acquisition_choices import Way
from .acquisition_run import AcquisitionRun
from .emoji_names import names_for, names_of_emoji
from .training import CHECKPOINTS

EMBEDDING, MODEL = "embedding", "model"


@dataclass
class Acquisition(AcquisitionRun):
    """One acquisition of a language: `load` the base, `run` the training, `save` the adapter.

    After `load`, `model` is the base with room for the language and `processor` its processor.

    Raises:
        TrainingSetupError: for several languages.
    """

    way: ClassVar[Way] = "adapter"
    result: ClassVar[str] = "an adapter"
    result_file: ClassVar[str] = "adapter_config.json"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.languages) > 1:
            raise TrainingSetupError(
                f"an adapter holds one language, and not {', '.join(self.languages)}: acquire one after the other, or "
                "all by a student (--way student)"
            )
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

    @property
    def added_parameters(self) -> int:
        """The number of the adapter's parameters; the first language's has the embedding beside it."""
        if len(self.model.config.languages) == 1:
            return super().added_parameters
        return self._acquirer_parameters

    @property
    def _acquirer_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.acquirer_parameters([self.language]))

    def start(self, train: Dataset) -> None:
        """Sets the embedding, if it is trained, so that the base reads texts as if each piece were translated."""
        if self.model.config.train_embedding:
            groups = () if self.emoji_names is None else self.emoji_names.groups
            solve_embedding(self.model, self.processor, self.language, self.sides(self.language, train), groups)

    @cached_property
    def emoji_names(self) -> NameTranslations | None:
        """Names of emoji that are aligned beside the sentences. A vocabulary of the sentences alone would cut them
        into pieces that are other words there."""
        takes_names = self.names and self.model.config.train_embedding and self.new_vocabulary is None
        names = names_of_emoji() if takes_names else None
        if names is None:
            return None
        texts = {self.language: self.sides(self.language, self.split[0])[0]}
        return names_for(texts, self.model.config.native_language, names).get(self.language)

    def retrieval(self, held_out: Dataset) -> dict[str, Any]:
        """As `retrieval_in`, of the language."""
        return self.retrieval_in(self.language, held_out)

    # ---- Output ----

    @cached_property
    def base_facts(self) -> BaseModel:
        """The base with its license."""
        return base_model_facts(self.base)

    @property
    def _base(self) -> str:
        """The base as an adapter names it: a folder by its whole path, which any working directory understands."""
        return self.named(self.base)

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
        if native.__module__.startswith(TRANSFORMERS_DYNAMIC_MODULE_NAME):
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
                write_card(scratch, self._assembled_facts())
        return folder

    def _assembled_facts(self) -> ModelCardFacts:
        config = self.model.config
        source = DataSource(name="Translations", license="unknown", role="translations", attribution="unknown")
        return ModelCardFacts(
            model_name=self.output.resolve().name,
            method=config.model_type,
            image_languages=[config.native_language],
            pair_languages=config.languages,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            training_data=[source],
            base_models=[self.base_facts],
            license=self.license,
        )

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
                _save_alone(self.processor.multilingual_tokenizer, scratch / EMBEDDING)
            save_adapter(self.model, self.language, scratch, embedding=self._embedding, base_model=self._base)
            write_short_card(scratch, self._facts(results, command))
            self.write_recipe(scratch)
        shutil.rmtree(self.output / CHECKPOINTS)

    def _facts(self, results: dict[str, float], command: str) -> AdapterCardFacts:
        config = self.model.config
        return AdapterCardFacts(
            name=self.output.resolve().name,
            language=self.language,
            native_language=config.native_language,
            base_model=self._base,
            on_mla=len(config.languages) > 1,
            parameters=self._acquirer_parameters,
            trained_embedding=config.train_embedding,
            embedding=self._embedding.removeprefix("./"),
            max_text_length=self.processor.max_text_length,
            pairs=len(self.split[0]),
            names=None if self.emoji_names is None else self.emoji_names.language,
            exposed=self.captions is not None,
            results=results,
            command=command,
            precision=self._precision,
            license=self.license,
            base=self.base_facts,
        )


def _save_alone(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Saves a tokenizer without the name of its processor, which is not in the folder. transformers writes that name
    if the tokenizer was saved with the processor before, as a checkpoint does; a run that is resumed at its end saves
    none."""
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings.pop("processor_class", None)
    file.write_text(json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
