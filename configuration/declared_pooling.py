"""How a text encoder wants its texts to be pooled, as the files of sentence-transformers state it."""

import json
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel
from transformers.utils import cached_file

from .errors import ModelFolderError, ModelKindError
from .feature_width import TextPooling

_FILE = "1_Pooling/config.json"
# The names of sentence-transformers: `{"pooling_mode": "mean"}` in newer files, `{"pooling_mode_mean_tokens": true}`
# in older ones.
_POOLINGS: dict[str, TextPooling] = {"cls": "cls", "mean": "mean", "lasttoken": "eos"}
_OLD_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_OF_FILES = ("cache_dir", "local_files_only", "revision", "token")


def declared_pooling(source: str | Path | PreTrainedModel, **loading: Any) -> TextPooling | None:
    """Returns the pooling that the folder of a text encoder states in `1_Pooling/config.json`, as those of
    sentence-transformers do (E5, LaBSE, MiniLM).

    Args:
        source: a folder, a repository of the Hub, or a model, which states none.
        loading: arguments of `from_pretrained`, such as `revision`.

    Returns:
        `None` if there is no such file.

    Raises:
        ModelFolderError: if the file is damaged.
        ModelKindError: if the file states a pooling that babelens does not have, such as the maximum over tokens.
        OSError: if there is no such folder or repository.

    Examples:
        >>> declared_pooling("intfloat/multilingual-e5-small")
        'mean'
    """
    if isinstance(source, PreTrainedModel):
        return None
    where = {name: value for name, value in loading.items() if name in _OF_FILES}
    file = cached_file(str(source), _FILE, _raise_exceptions_for_missing_entries=False, **where)
    if file is None:
        return None
    try:
        settings = json.loads(Path(file).read_text(encoding="utf-8"))
        modes = settings.get("pooling_mode") or [name for key, name in _OLD_NAMES.items() if settings.get(key)]
        stated = [modes] if isinstance(modes, str) else list(modes)
    except (ValueError, AttributeError, TypeError) as error:
        raise ModelFolderError(f"{source}: {_FILE} is damaged: {error}") from error
    if len(stated) != 1 or stated[0] not in _POOLINGS:
        raise ModelKindError(
            f"{source} pools texts by {' and '.join(map(str, stated)) or 'nothing'} ({_FILE}), which babelens does "
            f"not have: choose text_pooling, one of {', '.join(_POOLINGS.values())} or pooler"
        )
    return _POOLINGS[stated[0]]
