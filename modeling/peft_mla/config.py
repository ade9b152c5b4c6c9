"""Configuration of an MLA adapter: one language of a frozen dual encoder (Zhang et al. 2022), as a PEFT method; the
defaults are the paper's (sections 3.2 and 4.1), with M-BERT's vocabulary."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from peft.config import PeftConfig
from peft.utils import SAFETENSORS_WEIGHTS_NAME, PeftType
from safetensors import SafetensorError, safe_open

from ...utils.errors import InputError, ModelFolderError
from ...utils.languages import normalize_language


def peft_type_member(name: str) -> PeftType:
    """Returns the member of `PeftType` with this name, after adding it if it is new.

    PEFT looks its methods up by the members of this enumeration, and offers no other way to register a method from
    outside. This function does what `EnumType` does for each member when it creates the class.
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
_WEIGHTS_OF_A_BLOCK = {
    "mlp": {"down.weight", "down.bias", "up.weight", "up.bias"},
    "linear": {"map.weight", "map.bias"},
}


@dataclass
class MlaAdapterConfig(PeftConfig):
    """Configuration of an adapter that acquires one language.

    Args:
        language: BCP-47 tag of the language that the adapter acquires.
        native_language: BCP-47 tag of the language that the base model reads without adapters.
        acquirer, acquirer_size, vocab_size, embedding_size, sep_token_id, train_embedding: as in `MlaConfig`.
        embedding_digest: SHA-256 of the embedding that adapters of one model share, and each is saved with; written
            when it is saved.
        normalization: the version of `text_normalization` by which texts of the language are read; 0 for unchanged
            texts.
        text_width, text_layers, target_modules: width, number and names of the text tower's blocks; filled in from the
            model.

    Examples:
        >>> model = get_peft_model(clip, MlaAdapterConfig(language="de"), adapter_name="de")
        >>> model.save_pretrained("clip-de")
    """

    language: str = ""
    native_language: str = "en"
    acquirer: Literal["mlp", "linear"] = "mlp"
    acquirer_size: int = 256
    vocab_size: int = 119_547
    embedding_size: int = 768
    sep_token_id: int = 102
    train_embedding: bool = True
    embedding_digest: str | None = None
    normalization: int = 0
    text_width: int | None = None
    text_layers: int | None = None
    target_modules: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = MLA
        if not self.language:
            raise ValueError("an adapter acquires one language: name it, as in MlaAdapterConfig(language='de')")
        self.language = normalize_language(self.language)
        self.native_language = normalize_language(self.native_language)
        if self.acquirer not in _WEIGHTS_OF_A_BLOCK:
            raise ValueError(f"acquirer={self.acquirer!r} must be 'mlp' or 'linear'")
        if not 0 <= self.sep_token_id < self.vocab_size:
            raise ValueError(f"sep_token_id={self.sep_token_id} is not in a vocabulary of {self.vocab_size}")

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str, subfolder: str | None = None, **kwargs: Any
    ) -> "MlaAdapterConfig":
        """Loads a configuration as PEFT does, and checks the weights next to it: PEFT and transformers only warn about
        missing ones."""
        config = super().from_pretrained(pretrained_model_name_or_path, subfolder=subfolder, **kwargs)
        if config.peft_type != MLA:  # PEFT then returns the configuration of the other method
            raise InputError(f"{pretrained_model_name_or_path} holds an adapter of {config.peft_type.value}")
        weights = Path(pretrained_model_name_or_path, subfolder or "", SAFETENSORS_WEIGHTS_NAME)
        if weights.is_file():
            config._check_weights(weights)
        return config

    @classmethod
    def check_kwargs(cls, **kwargs: Any) -> dict[str, Any]:
        if place := kwargs.pop("embedding", None):  # a key of version 0.1
            raise InputError(f"the adapter's shared embedding is stored at {place}: an adapter holds its own")
        return super().check_kwargs(**kwargs)

    def _check_weights(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                names = list(file.keys())
        except SafetensorError as error:
            raise ModelFolderError(f"{path} is truncated or damaged ({error}); get it again") from error
        blocks: dict[str, set[str]] = {}
        for name in names:
            block, is_acquirer, weight = name.removeprefix("base_model.model.").partition(".mla_acquirers.")
            if is_acquirer:
                blocks.setdefault(block, set()).add(weight)
        known = [block for block in blocks if re.fullmatch(self.target_modules or ".*", block)]
        is_whole = all(weights == _WEIGHTS_OF_A_BLOCK[self.acquirer] for weights in blocks.values())
        if not is_whole or not len(known) == len(blocks) == (self.text_layers or len(blocks)):
            raise ModelFolderError(f"{path} lacks {self.acquirer!r} acquirers for {self.text_layers} blocks")
        if sum(".shared_embedding." in name for name in names) != 3:
            raise ModelFolderError(f"{path} has no shared embedding")
