"""Configuration of an MLA adapter: one language of a frozen dual encoder (Zhang et al. 2022), as a PEFT method.

The defaults are the paper's (sections 3.2 and 4.1), with M-BERT's vocabulary.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from peft.config import PeftConfig
from peft.utils import SAFETENSORS_WEIGHTS_NAME, PeftType
from safetensors import SafetensorError, safe_open

from ...configuration.text_towers import declared_text_tower
from ...utils.errors import ModelFolderError, ModelMismatchError
from ...utils.languages import normalize_language


def peft_type_member(name: str) -> PeftType:
    """Returns the member of `PeftType` with this name, after adding it if it is new.

    PEFT looks its methods up by the members of this enumeration. Python allows no new members of an existing
    enumeration, and PEFT offers no other way to register a method from outside. This function therefore does what
    `EnumType` does for each member when it creates the class; `tests/modeling/test_peft_mla.py` fails if a version
    of Python changes that.
    """
    if name not in PeftType.__members__:
        member = str.__new__(PeftType, name)
        member._name_, member._value_ = name, name
        member.__objclass__, member._sort_order_ = PeftType, len(PeftType)
        PeftType._member_names_.append(name)
        PeftType._member_map_[name] = PeftType._value2member_map_[name] = member
        type.__setattr__(PeftType, name, member)
    return PeftType[name]


MLA = peft_type_member("MLA")
PREFIX = "base_model.model."  # begins the names in an adapter's file
_MATRICES = {"mlp": ("down", "up"), "linear": ("map",)}  # linear layers of an acquirer


@dataclass
class MlaAdapterConfig(PeftConfig):
    """Configuration of an adapter that acquires one language.

    Args:
        language: BCP-47 tag of the language that the adapter acquires.
        native_language: BCP-47 tag of the language that the base model reads without adapters.
        acquirer: `mlp`, with a hidden layer, or `linear`, a single matrix (table 1).
        acquirer_size: width of the hidden layer of `mlp` acquirers.
        vocab_size: size of the vocabulary that acquired languages share.
        embedding_size: width of the table of that vocabulary.
        sep_token_id: id of the token that ends every text in that vocabulary: BERT's [SEP], XLM-R's </s>. A model that
            pools at its end-of-text token pools the state of this one.
        train_embedding: whether the shared embedding is trained together with the acquirers, as in the paper. If it
            stays frozen, earlier languages are not changed by later ones.
        embedding: folder or Hub repository in which `save_embedding` stored the shared embedding; a path that begins
            with `./` is relative to the adapter's folder. Without it, each adapter is saved with the embedding.
        embedding_digest: SHA-256 of the shared embedding that the adapter needs; written when it is saved.
        text_tower: where the model has the parts of its text tower, for a kind that MLA does not support by itself:
            `path`, `embeddings`, `blocks` and `pooling`, as in `TextTower`.
        text_width, text_layers, target_modules: width, number and names of the text tower's blocks; filled in from the
            model.

    Raises:
        LanguageTagError: if a tag names no language.
        ModelKindError: if `text_tower` is incomplete.
        ValueError: if there is no `language`, or a size is impossible.

    Examples:
        >>> model = get_peft_model(clip, MlaAdapterConfig(language="de"), adapter_name="de")
        >>> model.save_pretrained("clip-de")
    """

    language: str = field(default="", metadata={"help": "The language that the adapter acquires, a BCP-47 tag."})
    native_language: str = field(default="en", metadata={"help": "The language that the base model reads, a tag."})
    acquirer: Literal["mlp", "linear"] = field(
        default="mlp", metadata={"help": "`mlp`, with a hidden layer, or `linear`, a single matrix."}
    )
    acquirer_size: int = field(default=256, metadata={"help": "Width of the hidden layer of `mlp` acquirers."})
    vocab_size: int = field(default=119_547, metadata={"help": "Size of the vocabulary that languages share."})
    embedding_size: int = field(default=768, metadata={"help": "Width of the table of that vocabulary."})
    sep_token_id: int = field(
        default=102, metadata={"help": "Id of the token that ends every text in it, such as [SEP] or </s>."}
    )
    train_embedding: bool = field(
        default=True,
        metadata={
            "help": "Whether the shared embedding is trained together with the acquirers, as in the paper. If it "
            "stays frozen, earlier languages are not changed by later ones."
        },
    )
    embedding: str | None = field(
        default=None,
        metadata={
            "help": "Folder or Hub repository in which `save_embedding` stored the shared embedding; `./…` is "
            "relative to the adapter's folder. Without it, each adapter is saved with the embedding."
        },
    )
    embedding_digest: str | None = field(
        default=None,
        metadata={"help": "SHA-256 of the shared embedding that the adapter needs; written when it is saved."},
    )
    text_tower: dict[str, str] | None = field(
        default=None,
        metadata={
            "help": "Where the model has the parts of its text tower (path, embeddings, blocks, pooling), for a kind "
            "that MLA does not support by itself."
        },
    )
    text_width: int | None = field(
        default=None, metadata={"help": "Width of the text tower's blocks. Filled in from the model."}
    )
    text_layers: int | None = field(
        default=None, metadata={"help": "Number of the text tower's blocks. Filled in from the model."}
    )
    target_modules: str | None = field(
        default=None,
        metadata={"help": "The text tower's embedding and blocks, all of them. Filled in from the model."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = MLA
        if not self.language:
            raise ValueError("an adapter acquires one language: name it, as in MlaAdapterConfig(language='de')")
        self.language = normalize_language(self.language)
        self.native_language = normalize_language(self.native_language)
        if self.acquirer not in ("mlp", "linear"):
            raise ValueError(f"acquirer={self.acquirer!r} must be 'mlp' or 'linear'")
        for name in ("acquirer_size", "vocab_size", "embedding_size"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        if not 0 <= self.sep_token_id < self.vocab_size:
            raise ValueError(f"sep_token_id={self.sep_token_id} is not in a vocabulary of {self.vocab_size}")
        if self.text_tower is not None:
            declared_text_tower(self.text_tower)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str, subfolder: str | None = None, **kwargs: Any
    ) -> "MlaAdapterConfig":
        """Loads a configuration as PEFT does, and checks the weights beside it before a model loads them.

        Raises:
            ModelMismatchError: if the adapter is one of another PEFT method.
            ModelFolderError: if the file of weights is truncated, or its weights do not fit the configuration.
        """
        config = super().from_pretrained(pretrained_model_name_or_path, subfolder=subfolder, **kwargs)
        if config.peft_type != MLA:  # PEFT then returns the configuration of the other method
            raise ModelMismatchError(
                f"{pretrained_model_name_or_path} holds an adapter of {config.peft_type.value}, and not of MLA"
            )
        weights = Path(pretrained_model_name_or_path, subfolder or "", SAFETENSORS_WEIGHTS_NAME)
        if weights.is_file():
            config._check_weights(weights)
        if config.embedding is not None and config.embedding.startswith("./"):
            folder = [str(pretrained_model_name_or_path), subfolder, config.embedding.removeprefix("./")]
            config.embedding = "/".join(filter(None, folder))
        return config

    def _is_acquirer(self, name: str) -> bool:
        """Returns whether a weight in an adapter's file belongs to an acquirer of one of the text tower's blocks."""
        module, _, weight = name.removeprefix(PREFIX).partition(".mla_acquirers.")
        matrix, _, kind = weight.partition(".")
        is_block = self.target_modules is None or re.fullmatch(self.target_modules, module) is not None
        return is_block and matrix in _MATRICES[self.acquirer] and kind in ("weight", "bias")

    def _check_weights(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                names = list(file.keys())
        except SafetensorError as error:
            raise ModelFolderError(f"{path} is truncated or damaged ({error}); get it again") from error
        acquirers = [name for name in names if ".mla_acquirers." in name]
        in_a_block = 4 if self.acquirer == "mlp" else 2  # a weight and a bias for each linear layer
        if self.text_layers is not None and len(acquirers) != self.text_layers * in_a_block:
            raise ModelFolderError(
                f"{path} has {len(acquirers)} weights of acquirers; {self.text_layers} blocks with {self.acquirer!r} "
                f"acquirers have {self.text_layers * in_a_block}"
            )
        if strangers := [name for name in acquirers if not self._is_acquirer(name)]:
            raise ModelFolderError(
                f"{path} has {strangers[0]!r}, which is not a weight of {self.acquirer!r} acquirers behind "
                f"{self.target_modules!r}"
            )
        if self.embedding is None and not any(".shared_embedding." in name for name in names):
            raise ModelFolderError(f"{path} has no shared embedding, and its configuration does not say where it is")
