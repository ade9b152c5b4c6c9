import filecmp
import inspect
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModel, PreTrainedModel, pipeline

from babelens.inference.pipelines import PHOTO_TEMPLATES

from .common import LANGUAGES, TEXTS, assert_equal, drawn_images, embeddings
from .loading import LoadingContract
from .pipelines import in_pipelines

# Run with the folder of a model, the inputs as JSON, a folder for the results and for the model saved again.
_WITHOUT_PACKAGE = """
import json, sys
from pathlib import Path
from typing import Any
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoImageProcessor, AutoModel, AutoProcessor, pipeline

{in_pipelines}

folder, again, inputs, results = sys.argv[1:]
inputs = json.loads(inputs)
images = [Image.open(path) for path in inputs.pop("images")]
in_pipelines_too = inputs.pop("pipelines")
trusting = {{"trust_remote_code": True}}

def embeddings(folder):
    model, processor = AutoModel.from_pretrained(folder, **trusting), AutoProcessor.from_pretrained(folder, **trusting)
    for loaded in (model, processor, AutoImageProcessor.from_pretrained(folder, **trusting)):
        assert type(loaded).__module__.startswith("transformers_modules."), type(loaded)
    with torch.no_grad():
        output = model(**processor(images=images, **inputs, return_tensors="pt"))
    return model, processor, {{name: output[name] for name in ("text_embeds", "image_embeds")}}

def scores(folder):
    scores = in_pipelines(folder, images, inputs["text"], inputs["language"], **trusting)
    classify = pipeline("zero-shot-image-classification", model=folder, **trusting)
    ranking = classify(images[0], candidate_labels=inputs["text"])
    found = {{entry["label"]: entry["score"] for entry in ranking}}
    return scores | {{"scores": torch.tensor([found[text] for text in inputs["text"]])}}

model, processor, first = embeddings(folder)
processor.save_pretrained(again)
model.save_pretrained(again)
for name, value in embeddings(again)[2].items():
    assert torch.equal(value, first[name]), name
save_file(first | (scores(folder) if in_pipelines_too else {{}}), results)
"""


class PublishedModelContract(LoadingContract):
    """A saved model is loaded to the same bits. A subclass for other models than dual encoders defines `answers`."""

    # Auto classes that load it, in addition to its own class.
    auto_classes: ClassVar[tuple[Any, ...]] = (AutoModel,)
    # Prefixes of the names of weights that are never in half precision.
    always_exact: ClassVar[tuple[str, ...]] = ()

    def answers(self, model: PreTrainedModel, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return embeddings(model, batch)

    @pytest.fixture(scope="class")
    @classmethod
    def published(cls, make, tmp_path_factory) -> Path:
        """Not to be changed."""
        folder = tmp_path_factory.mktemp(cls.factory) / "model"
        for part in filter(None, make()):
            part.save_pretrained(folder)
        return folder

    def test_loaded_with_the_package_to_the_same_bits(self, published, model, batch):
        for loader in (type(model), *self.auto_classes):
            loaded, info = loader.from_pretrained(published, output_loading_info=True)
            assert type(loaded) is type(model) and not loaded.training
            assert not any(info.values()), info
            assert_equal(dict(loaded.state_dict()), dict(model.state_dict()))
            assert_equal(self.answers(loaded, batch), self.answers(model, batch))
        # torchao reads the weights of modules inside a model, none of the model itself.
        assert [name for name in model.state_dict() if "." not in name] == []

    def test_loaded_in_half_precision(self, published, model, tmp_path):
        self.auto_classes[0].from_pretrained(published, dtype=torch.bfloat16).save_pretrained(tmp_path)
        again = self.auto_classes[0].from_pretrained(tmp_path, dtype="auto")
        assert_equal(
            dict(again.state_dict()),
            {
                n: v if not v.is_floating_point() or n.startswith(self.always_exact) else v.bfloat16()
                for n, v in model.state_dict().items()
            },
        )


class PublishingContract(PublishedModelContract):
    """A saved folder is an ordinary Hugging Face dual encoder: with the package, without it, and in pipelines."""

    # transformers' own pipelines read texts with a tokenizer, which a word-level method does not have.
    has_tokenizer: ClassVar[bool] = True
    # Run the pipelines, whose code all methods share, also where the package is missing.
    pipelines_without_the_package: ClassVar[bool] = False
    # The languages in which a pipeline without `language` reads the captions.
    pipeline_languages: ClassVar[list[str]] = LANGUAGES

    def test_loaded_without_the_package_to_the_same_bits(
        self, published, parts, batch, run_without_babelens, tmp_path
    ):
        # Both sides read one file: the last bit of a matrix product may depend on the memory address of the weights.
        model, processor = self.auto_classes[0].from_pretrained(published), parts[1]
        paths = [str(tmp_path / f"{i}.png") for i in range(len(TEXTS))]
        for path, image in zip(paths, drawn_images(len(TEXTS)), strict=True):
            image.save(path)
        too = self.pipelines_without_the_package
        inputs = json.dumps({"images": paths, "text": TEXTS, "language": LANGUAGES, "pipelines": too})
        script = _WITHOUT_PACKAGE.format(in_pipelines=inspect.getsource(in_pipelines))
        run_without_babelens(script, published, tmp_path / "again", inputs, tmp_path / "results")
        found = load_file(tmp_path / "results")
        expected = embeddings(model, batch)
        if too:
            expected["scores"] = self.scores(model, processor, drawn_images(1)[0], "This is a photo of {}.")
            expected |= in_pipelines(str(published), drawn_images(len(TEXTS)), TEXTS, LANGUAGES)
        assert_equal(found, expected)
        # Only the package writes the files of sentence-transformers.
        of_others = {"modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"}
        names, again = {path.name for path in published.iterdir()}, tmp_path / "again"
        assert {path.name for path in again.iterdir()} == names - of_others
        same = [name for name in names if name.endswith((".py", ".safetensors"))]
        assert filecmp.cmpfiles(published, again, same, shallow=False)[1:] == ([], [])
        for name in ("config.json", "processor_config.json"):
            first, second = (json.loads((folder / name).read_text()) for folder in (published, again))
            assert second["auto_map"] == first["auto_map"], name

    @torch.no_grad()
    def scores(self, model: PreTrainedModel, processor: Any, image: Image.Image, template: str) -> Tensor:
        texts = [template.format(text) for text in TEXTS]
        output = model(**processor(images=image, text=texts, language=self.pipeline_languages, return_tensors="pt"))
        return output.logits_per_image[0].softmax(0)

    @torch.no_grad()
    def test_pipelines_with_languages(self, published, model, processor, batch):
        """Labels use the template of their language; the processor gets the language of texts."""
        found = in_pipelines(str(published), drawn_images(len(TEXTS)), TEXTS, LANGUAGES)
        prompts = [PHOTO_TEMPLATES[tag][0].format(text) for tag, text in zip(LANGUAGES, TEXTS, strict=True)]
        inputs = processor(images=drawn_images(1), text=prompts, language=LANGUAGES, return_tensors="pt")
        torch.testing.assert_close(found["classified"], model(**inputs).logits_per_image[0].softmax(0))
        expected = embeddings(model, batch)
        torch.testing.assert_close(found["embedded"], expected["text_embeds"])
        torch.testing.assert_close(found["embedded_images"], expected["image_embeds"])
        texts = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
        for task in getattr(model.config, "tasks", []):
            features = model.get_text_features(**texts, task=task).pooler_output
            torch.testing.assert_close(found[f"embedded_{task}"], features / features.norm(dim=-1, keepdim=True))

    def test_feature_extraction(self, published, model, processor, batch):
        if not self.has_tokenizer:
            pytest.skip("without a tokenizer")
        texts = processor(text=TEXTS, language=self.pipeline_languages, return_tensors="pt")
        expected = embeddings(model, batch | dict(texts))
        found = pipeline("feature-extraction", model=str(published))(TEXTS)
        torch.testing.assert_close(torch.tensor(found)[:, 0], expected["text_embeds"])
        found = pipeline("image-feature-extraction", model=str(published))(drawn_images(len(TEXTS)))
        torch.testing.assert_close(torch.tensor(found)[:, 0], expected["image_embeds"])
