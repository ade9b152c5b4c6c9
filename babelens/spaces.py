"""A Space beside a model: a page, made with Gradio, on which everybody can try the model in a browser.

https://huggingface.co/docs/hub/spaces-config-reference
"""

import json
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
from huggingface_hub import CommitOperationAdd, HfApi, ModelCard
from peft.utils import CONFIG_NAME

from .model_cards.cards import requirements
from .publishing import files_to_publish
from .registry import dual_encoder_of
from .uploads import Published, committed, upload_errors_explained
from .utils.errors import PublishError
from .utils.pretrained import load_config

GRADIO = "6.31.0"  # the version that the tests run
_TEMPLATES = Path(__file__).parent / "model_cards"
_MAX_TITLE = 60
_OF_PAGE = ("torch", "transformers", "PIL")  # what app.py needs besides the model's code


def space_files(folder: str | Path, model: str) -> dict[str, bytes]:
    """The files of a Space for a model.

    Args:
        folder: the model's folder, with its card, from which languages and examples are taken.
        model: the model's repository on the Hub.

    Returns:
        The contents of `README.md` with the Space's settings, `app.py`, `requirements.txt` and the images of examples,
        by their paths.

    Raises:
        PublishError: for an adapter, a model that is no dual encoder, and a repository without its owner.
    """
    folder = Path(folder)
    if "/" not in model:
        raise PublishError(f"the page of a Space loads {model!r} from the Hub: name its owner too, as owner/{model}")
    _check_is_dual_encoder(folder)
    metadata = ModelCard.load(folder / "README.md").data.to_dict()
    languages = _languages(metadata)
    examples = _examples(metadata, folder, languages[0])
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    facts = {"model": model, "gradio": GRADIO, "count": _counted(languages), "languages": _python(languages)}
    facts |= {"title": model.partition("/")[2][:_MAX_TITLE], "examples": _python(examples)}
    written = {
        "README.md": environment.get_template("space.md.jinja").render(facts),
        "app.py": environment.get_template("space_app.py.jinja").render(facts),
        "requirements.txt": "".join(f"{line}\n" for line in requirements(folder, _OF_PAGE)),
    }
    images = {source: (folder / source).read_bytes() for source, *_ in examples}
    return {path: text.encode() for path, text in written.items()} | images


def push_space(
    folder: str | Path, model: str, space: str, *, private: bool = False, api: HfApi | None = None
) -> Published:
    """Publishes a Space for a model that is on the Hub.

    Args:
        folder: the model's folder.
        model: its repository.
        space: the repository of the Space, which is created if it is missing.
        private: whether a new Space is private; one that exists must be so already.
        api: the client of the Hub; by default a new one.

    Raises:
        PublishError: as `space_files`, and for a public Space where a private one was asked for.
        HubUnreachableError: when the Hub does not answer, or refuses the upload.
    """
    files, api = space_files(folder, model), api or HfApi()
    with upload_errors_explained(f"the Space of {folder}", space, api):
        space = api.create_repo(space, repo_type="space", space_sdk="gradio", private=private, exist_ok=True).repo_id
        operations = [CommitOperationAdd(path, content) for path, content in files.items()]
        return committed(api, space, operations, "Upload a page to try the model", private=private, kind="space")


def _check_is_dual_encoder(folder: Path) -> None:
    if (folder / CONFIG_NAME).is_file():
        raise PublishError(f"{folder} is an adapter, which has no code that a Space could run: publish a whole model")
    if dual_encoder_of(load_config(folder).model_type) is None:
        raise PublishError(f"{folder} is no dual encoder: a Space is a page to compare images and texts with one")


def _languages(metadata: dict[str, Any]) -> list[str]:
    """The tags of the card's languages."""
    given = metadata.get("language_bcp47") or metadata["language"]
    return [given] if isinstance(given, str) else list(given)


def _counted(languages: list[str]) -> str:
    return f"{len(languages)} languages" if len(languages) > 1 else "one language"


def _examples(metadata: dict[str, Any], folder: Path, language: str) -> list[list[str]]:
    """The image, the labels and their language of each example of the card whose image is published with the model."""
    published = files_to_publish(folder)
    shown = [each for each in metadata.get("widget") or [] if str(PurePosixPath(each.get("src", ""))) in published]
    return [
        [each["src"], each["candidate_labels"].replace(", ", "\n"), each.get("group") or language]
        for each in shown
        if "candidate_labels" in each
    ]


def _python(value: Any) -> str:
    """A list of texts as Python code, which JSON is."""
    return json.dumps(value, ensure_ascii=False)
