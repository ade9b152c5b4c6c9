"""Loading a LoRA that PEFT saved: its base model, with the adapter merged into its weights."""

from typing import Any

from peft import PeftModel

from ..configuration.errors import ModelFolderError, ModelMismatchError, first_line
from ..configuration.pretrained import explained
from .adapter_files import adapter_settings, fetched_adapter
from .loading import DualEncoder, load_dual_encoder


def load_lora_adapter(source: str, **loading: Any) -> DualEncoder:
    """Loads the base model of a LoRA, and merges the adapter into it: the result is a plain model.

    Args:
        source: the adapter's folder, or its repository on the Hub: `adapter_config.json` and
            `adapter_model.safetensors`, as PEFT's `save_pretrained` writes them for any dual encoder.
        loading: what `from_pretrained` takes.

    Raises:
        ModelFolderError: if the adapter names no base model, or a file is missing or damaged.
        ModelMismatchError: if the adapter was made for another model, or cannot be merged.
    """
    with explained(source, loading):
        folder = fetched_adapter(source, loading)
        settings = adapter_settings(folder)
    base = settings.get("base_model_name_or_path")
    if not base:
        raise ModelFolderError(f"{source}: adapter_config.json does not say which model the adapter is for")
    # A revision that was asked for is that of the adapter, which is another repository.
    model, processor = load_dual_encoder(base, **loading | {"revision": settings.get("revision")})
    with explained(source, loading):
        try:
            adapted: Any = PeftModel.from_pretrained(model, folder)
            _check_weights(adapted, folder)
            return adapted.merge_and_unload(), processor
        except (ValueError, RuntimeError, KeyError) as error:
            raise ModelMismatchError(f"{source}: this LoRA does not fit {base}: {first_line(error)}") from error


def _check_weights(adapted: Any, folder: str) -> None:
    """Checks that the file has weights for every layer that its configuration names."""
    from peft.utils import get_peft_model_state_dict, load_peft_weights

    held = load_peft_weights(folder, device="cpu")
    wanted = get_peft_model_state_dict(adapted)
    missing, unknown = sorted(wanted.keys() - held.keys()), sorted(held.keys() - wanted.keys())
    if missing or unknown:
        raise ValueError(f"missing {missing[:3]}, unknown {unknown[:3]}")
