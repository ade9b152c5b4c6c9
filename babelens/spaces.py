"""Publishes a Space for a model: a Gradio page on which anyone can try the model in a browser. It runs the code in the
model's repository. https://huggingface.co/docs/hub/spaces-config-reference"""

import json
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import jinja2
from huggingface_hub import HfApi, ModelCard
from peft.utils import CONFIG_NAME

from .model_cards.cards import requirements
from .publishing import CARD, Published, files_to_publish, upload, upload_errors_explained
from .registry import dual_encoder_of
from .utils.errors import PublishError
from .utils.pretrained import load_config

GRADIO = "6.31.0"  # the version that the tests run
_TEMPLATES = Path(__file__).parent / "model_cards"
_MAX_TITLE = 60
_OF_PAGE = ("torch", "transformers", "PIL")  # packages that app.py needs in addition to the model's code


def space_files(folder: str | Path, model: str) -> dict[str, bytes]:
    """The files of a Space for the repository `model`, by path; the folder's card gives languages and examples."""
    folder = Path(folder)
    if "/" not in model:
        raise PublishError(f"the page of a Space loads {model!r} from the Hub: include the owner, as in owner/{model}")
    if (folder / CONFIG_NAME).is_file():
        raise PublishError(f"{folder} is an adapter, without code that a Space could run: publish a whole model")
    if dual_encoder_of(load_config(folder).model_type) is None:
        raise PublishError(f"{folder} is not a dual encoder: a Space compares images and texts with one")
    metadata = ModelCard.load(folder / CARD).data.to_dict()
    given = metadata.get("language_bcp47") or metadata["language"]
    languages = [given] if isinstance(given, str) else list(given)
    published = files_to_publish(folder)
    examples = [
        [each["src"], each["candidate_labels"].replace(", ", "\n"), each.get("group") or languages[0]]
        for each in metadata.get("widget") or []
        if "candidate_labels" in each and str(PurePosixPath(each.get("src", ""))) in published
    ]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    counted = f"{len(languages)} languages" if len(languages) > 1 else "one language"
    facts = {"model": model, "gradio": GRADIO, "count": counted, "title": model.partition("/")[2][:_MAX_TITLE]}
    # Lists of texts are the same in Python as in JSON.
    facts |= {
        "languages": json.dumps(languages, ensure_ascii=False),
        "examples": json.dumps(examples, ensure_ascii=False),
    }
    written = {
        CARD: environment.get_template("space.md.jinja").render(facts),
        "app.py": environment.get_template("space_app.py.jinja").render(facts),
        "requirements.txt": "".join(f"{line}\n" for line in requirements(folder, _OF_PAGE)),
    }
    images = {source: (folder / source).read_bytes() for source, *_ in examples}
    return {path: text.encode() for path, text in written.items()} | images


def push_space(
    folder: str | Path, model: str, space: str, *, private: bool = False, api: HfApi | None = None
) -> Published:
    """Publishes a Space for a folder that is on the Hub as `model`. The repository `space` is created if it is
    missing; with `private`, an existing one must already be private."""
    files, api = space_files(folder, model), api or HfApi()
    with upload_errors_explained(f"the Space of {folder}", space, api), TemporaryDirectory() as scratch:
        space = api.create_repo(space, repo_type="space", space_sdk="gradio", private=private, exist_ok=True).repo_id
        for path, content in files.items():
            place = Path(scratch, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        return upload(api, scratch, space, "Upload a page to try the model", private=private, kind="space")
