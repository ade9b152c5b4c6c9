"""What every method keeps, written once: contracts that a method's test classes inherit.

A method needs a fixture that builds a tiny model and its processor, and says its name; nothing else is compulsory:

    from contracts import ConfigContract, DualEncoderContract, ProcessorContract, PublishingContract


    class TestSmalr(ConfigContract, DualEncoderContract, ProcessorContract, PublishingContract):
        factory = "make_smalr"

`factory(**options) -> (model in eval mode, processor)` builds the same at every call. A class may state more:
`options` for the factory, `training_batches` where a method has further tasks, the attributes below where it differs.
"""

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoProcessor,
    PreTrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    pipeline,
)

import babelens
from babelens.configuration.languages import LanguageTagError

# Scripts with and without case, with and without spaces between words; texts of different lengths.
CAPTIONS = {
    "en": "a red car",
    "de": "ein rotes Auto, das schnell durch die Stadt fährt",
    "fr": "un chien gris",
    "th": "สุนัขสีน้ำตาลวิ่งเล่น",
    "zh": "一只灰狗",
    "ar": "قطة تجلس على النافذة",
}
LANGUAGES, TEXTS = list(CAPTIONS), list(CAPTIONS.values())


def pictures(count: int) -> list[Image.Image]:
    """Different pictures: coloured ramps with noise, of different sizes."""
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(count):
        height, width = rng.integers(33, 64, 2)
        ramp = np.linspace(rng.uniform(0, 200, 3), rng.uniform(0, 200, 3), width)[None]  # [1, width, 3]
        drawn.append(Image.fromarray((ramp + rng.uniform(0, 50, (height, width, 3))).astype(np.uint8)))
    return drawn


class _Contract:
    factory: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def make(cls, request: pytest.FixtureRequest) -> Callable[[], tuple[PreTrainedModel, Any]]:
        return partial(request.getfixturevalue(cls.factory), **cls.options)

    @pytest.fixture
    def parts(self, make) -> tuple[PreTrainedModel, Any]:
        return make()

    @pytest.fixture
    def model(self, parts) -> PreTrainedModel:
        return parts[0]

    @pytest.fixture
    def processor(self, parts) -> Any:
        return parts[1]

    @pytest.fixture
    def batch(self, processor) -> dict[str, Tensor]:
        return image_text_batch(processor)


def image_text_batch(processor: Any) -> dict[str, Tensor]:
    """Pictures with a caption each."""
    return dict(processor(images=pictures(len(TEXTS)), text=TEXTS, language=LANGUAGES, return_tensors="pt"))


def translation_batch(processor: Any) -> dict[str, Tensor]:
    """Texts with a translation each, for methods with a text-text task."""
    texts = dict(processor(text=TEXTS, language=LANGUAGES, return_tensors="pt"))
    translations = processor(text=TEXTS[::-1], language=LANGUAGES[::-1], return_tensors="pt")
    return texts | {f"paired_{name}": value for name, value in translations.items()}


def split(batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The text inputs and the picture inputs of an image-text batch."""
    text = {name: value for name, value in batch.items() if name != "pixel_values"}
    return text, {"pixel_values": batch["pixel_values"]}


@torch.no_grad()
def embeddings(model: PreTrainedModel, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    output = model(**batch)
    return {name: output[name] for name in ("text_embeds", "image_embeds")}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], **tolerance: float) -> None:
    """The same names and values, to the bit unless a tolerance is given."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, **tolerance or {"rtol": 0, "atol": 0}, msg=lambda m, n=name: f"{n}: {m}"
        )


class ConfigContract(_Contract):
    """Configurations come back as they were saved, and refuse what they do not know."""

    @pytest.fixture
    def config(self, model) -> Any:
        return model.config

    def test_json_round_trip(self, config):
        for use_diff in (True, False):
            again = type(config).from_dict(json.loads(config.to_json_string(use_diff=use_diff)))
            assert again.to_dict() == config.to_dict()

    def test_defaults_round_trip(self, config):
        default = type(config)()
        again = type(config).from_dict(json.loads(default.to_json_string()))
        assert again.to_dict() == default.to_dict()

    def test_saved_and_loaded(self, config, tmp_path):
        config.save_pretrained(tmp_path)
        for loader in (type(config), AutoConfig):
            again = loader.from_pretrained(tmp_path)
            assert type(again) is type(config)
            again.name_or_path = config.name_or_path
            assert again.to_dict() == config.to_dict()

    def test_copied_and_pickled(self, config):
        for again in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
            assert again.to_dict() == config.to_dict()

    def test_registered_by_its_name(self, config):
        assert type(AutoConfig.for_model(config.model_type)) is type(config)
        assert babelens.METHODS[config.model_type].config is type(config)

    def test_an_unknown_key_is_refused_by_name(self, config):
        known = _own_fields(config)[0].name
        with pytest.raises(ValueError, match="has no key 'no_such_key'"):
            type(config)(no_such_key=1)
        with pytest.raises(ValueError, match=f"did you mean '{known}'"):
            type(config)(**{known[:-1]: getattr(config, known)})

    def test_an_unknown_key_of_a_tower_is_refused_by_name(self, config):
        for tower in config.sub_configs_defaults:
            settings = getattr(config, tower).to_dict()
            with pytest.raises(ValueError, match=f"has no key '{tower}.no_such_key'"):
                type(config)(**{tower: settings | {"no_such_key": 1}})

    def test_an_unknown_key_in_a_file_is_refused(self, config, tmp_path):
        towers = list(config.sub_configs_defaults)
        for place in (lambda content: content, *(lambda content, tower=tower: content[tower] for tower in towers)):
            config.save_pretrained(tmp_path)
            content = json.loads((tmp_path / "config.json").read_text())
            place(content)["no_such_key"] = 1
            (tmp_path / "config.json").write_text(json.dumps(content))
            with pytest.raises(ValueError, match="no_such_key"):
                AutoConfig.from_pretrained(tmp_path)

    def test_a_wrong_type_is_refused(self, config):
        for field in _own_fields(config):
            with pytest.raises(StrictDataclassFieldValidationError, match=f"'{field.name}'"):
                type(config)(**{field.name: object()})


def _own_fields(config: Any) -> list[dataclasses.Field]:
    """The fields that a method adds to transformers' own, towers apart."""
    others = {field.name for field in dataclasses.fields(PreTrainedConfig)} | set(config.sub_configs)
    return [field for field in dataclasses.fields(config) if field.name not in others]


class DualEncoderContract(_Contract):
    """The model computes what it says, however it is called."""

    # Largest distance of an embedding in bfloat16 from that in float32; both have length 1.
    bfloat16_tolerance = 0.05
    # Whether all languages share a vocabulary, which can be resized.
    has_one_vocabulary = True
    # Parts that may be frozen with something left to train.
    freezable: ClassVar[tuple[str, ...]] = ("text_model", "vision_model")

    def two_towers(self, model: PreTrainedModel) -> PreTrainedModel:
        """The part of the model that has the towers."""
        return model

    def training_batches(self, processor: Any) -> dict[str, dict[str, Tensor]]:
        """A batch of each of the method's tasks."""
        return {"image_text": image_text_batch(processor)}

    # ---- What comes out ----

    def test_embeddings_have_length_one_and_logits_are_cosines_by_temperature(self, model, batch):
        with torch.no_grad():
            output = model(**batch)
        for embeds in (output.text_embeds, output.image_embeds):
            torch.testing.assert_close(embeds.norm(dim=-1), torch.ones(len(TEXTS)))
            assert embeds.std(0).mean() > 0.01  # different inputs, different embeddings
        expected = output.text_embeds @ output.image_embeds.T / output.temperature
        torch.testing.assert_close(output.logits_per_text, expected)
        assert torch.equal(output.logits_per_image, output.logits_per_text.T)

    def test_features_are_the_embeddings_before_they_are_normalised(self, model, batch):
        text, images = split(batch)
        with torch.no_grad():
            features = {
                "text_embeds": model.get_text_features(**text).pooler_output,
                "image_embeds": model.get_image_features(**images).pooler_output,
            }
        assert not torch.allclose(features["text_embeds"].norm(dim=-1), torch.ones(len(TEXTS)))
        normalised = {name: value / value.norm(dim=-1, keepdim=True) for name, value in features.items()}
        assert_equal(normalised, embeddings(model, batch), rtol=1e-6, atol=1e-6)

    def test_features_bring_the_towers_states_when_asked(self, model, batch):
        text, images = split(batch)
        for features, inputs in ((model.get_text_features, text), (model.get_image_features, images)):
            assert features(**inputs).hidden_states is None
            output = features(**inputs, output_hidden_states=True)
            assert len(output.hidden_states) > 1
            assert output.last_hidden_state.shape[0] == output.pooler_output.shape[0] == len(TEXTS)
            plain = features(**inputs, return_dict=False)
            assert torch.equal(plain[1], output.pooler_output)

    def test_one_modality_alone_gives_its_embedding_first(self, model, batch):
        both = embeddings(model, batch)
        for inputs, name in zip(split(batch), ("text_embeds", "image_embeds"), strict=True):
            with torch.no_grad():
                output = model(**inputs)
            assert torch.equal(output[0], both[name])
            assert output.logits_per_text is None and output.logits_per_image is None

    def test_without_return_dict_the_same_values_come_as_a_tuple(self, model, batch):
        with torch.no_grad():
            named, plain = model(**batch, return_loss=True), model(**batch, return_loss=True, return_dict=False)
        assert isinstance(plain, tuple)
        assert torch.equal(plain[0], named.loss)
        for one, other in zip(plain, named.to_tuple(), strict=True):
            assert torch.equal(one, other)

    def test_there_may_be_more_texts_than_pictures(self, model, batch):
        text, images = split(batch)
        with torch.no_grad():
            fewer = model(**text, pixel_values=images["pixel_values"][:2])
            every = model(**batch)
        assert fewer.logits_per_image.shape == (2, len(TEXTS))
        torch.testing.assert_close(fewer.logits_per_image, every.logits_per_image[:2], rtol=1e-4, atol=1e-4)
        with pytest.raises(ValueError, match=r"\[2, \d+\]"):
            model(**text, pixel_values=images["pixel_values"][:2], return_loss=True)

    def test_the_loss_is_the_objective_on_the_embeddings(self, model, processor):
        for inputs in self.training_batches(processor).values():
            with torch.no_grad():
                output = model(**inputs, return_loss=True)
                slim = model(**inputs, return_logits=False)
            assert slim.loss is None and slim.logits_per_text is None and slim.logits_per_image is None
            assert torch.equal(model.contrastive_objective(slim), output.loss)
            assert output.loss.dim() == 0 and output.loss.isfinite()

    def test_a_loss_of_one_modality_is_refused(self, model, batch):
        for inputs in split(batch):
            with pytest.raises(ValueError, match="a loss needs"):
                model(**inputs, return_loss=True)

    # ---- What it does not depend on ----

    def test_order_does_not_matter(self, model, batch):
        order = torch.randperm(len(TEXTS), generator=torch.Generator().manual_seed(1))
        shuffled = embeddings(model, {name: value[order] for name, value in batch.items()})
        expected = {name: value[order] for name, value in embeddings(model, batch).items()}
        assert_equal(shuffled, expected, rtol=0, atol=1e-6)

    def test_batch_and_padding_do_not_matter(self, model, processor):
        together = embeddings(model, image_text_batch(processor))
        for i, (text, language, picture) in enumerate(zip(TEXTS, LANGUAGES, pictures(len(TEXTS)), strict=True)):
            inputs = processor(images=[picture], text=[text], language=language, return_tensors="pt")
            alone = {name: value[0] for name, value in embeddings(model, inputs).items()}
            assert_equal(alone, {name: value[i] for name, value in together.items()}, rtol=0, atol=1e-6)

    def test_evaluation_draws_no_random_numbers(self, model, batch):
        results = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            state = torch.get_rng_state()
            results.append(embeddings(model, batch))
            assert torch.equal(torch.get_rng_state(), state)
        assert_equal(*results)

    def test_inputs_and_weights_stay_as_they_are(self, model, batch):
        before = copy.deepcopy((batch, model.state_dict()))
        embeddings(model, batch)
        assert_equal(batch, before[0])
        assert_equal(model.state_dict(), before[1])

    def test_building_is_repeatable_and_copies_are_equal(self, model, make, batch):
        expected = embeddings(model, batch)
        for other in (make()[0], copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert_equal(dict(other.state_dict()), dict(model.state_dict()))
            assert_equal(embeddings(other, batch), expected)

    def test_attention_implementations_agree(self, model, batch):
        owner = self.two_towers(model)
        towers = {"text_config": owner.text_model, "vision_config": owner.vision_model}
        # Neither convolutions nor recurrent layers attend.
        able = {name: tower for name, tower in towers.items() if getattr(tower, "_supports_sdpa", False)}
        if not able:
            pytest.skip("nothing in it attends")
        results = []
        for implementation in ("eager", "sdpa"):
            owner.set_attn_implementation(dict.fromkeys(able, implementation))
            assert {tower.config._attn_implementation for tower in able.values()} == {implementation}
            results.append(embeddings(model, batch))
        assert_equal(*results, rtol=0, atol=1e-5)

    def test_bfloat16_stays_close(self, model, batch):
        exact = embeddings(model, batch)
        rough = copy.deepcopy(model).to(torch.bfloat16)
        halved = {name: value.bfloat16() if value.is_floating_point() else value for name, value in batch.items()}
        found = embeddings(rough, halved)
        assert {value.dtype for value in found.values()} == {torch.bfloat16}
        for name, value in exact.items():
            assert (found[name].float() - value).norm(dim=-1).max() < self.bfloat16_tolerance, name
        loss = rough(**halved, return_loss=True).loss
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, model(**batch, return_loss=True).loss, rtol=0.1, atol=0.1)

    # ---- Training ----

    def test_what_should_train_gets_a_gradient_and_nothing_else_does(self, make, processor):
        for frozen in (None, *self.freezable):
            model = make()[0].train()
            if frozen:
                model.get_submodule(frozen).requires_grad_(False)
            for inputs in self.training_batches(processor).values():
                model(**inputs, return_loss=True).loss.backward()
            trained = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
            assert trained == {name for name, p in model.named_parameters() if p.requires_grad}, frozen

    @pytest.mark.parametrize("dropout", [True, False])
    def test_gradient_checkpointing_changes_nothing(self, model, processor, dropout):
        if not model.supports_gradient_checkpointing:
            pytest.skip("not supported, as the model says")
        if not dropout:
            for module in model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
        checkpointed = copy.deepcopy(model)
        checkpointed.activation_checkpointing_enable()
        for inputs in self.training_batches(processor).values():
            plain, plain_calls = _training_pass(model, inputs)
            again, calls = _training_pass(checkpointed, inputs)
            assert calls > plain_calls  # layers were computed a second time
            assert_equal(again, plain)

    def test_resized_embeddings_keep_the_old_rows_and_are_saved(self, model, batch, tmp_path):
        if not self.has_one_vocabulary:
            pytest.skip("every language has its own")
        expected, size = embeddings(model, batch), model.get_input_embeddings().num_embeddings
        model.resize_token_embeddings(size + 5)
        assert model.get_input_embeddings().num_embeddings == size + 5
        assert_equal(embeddings(model, batch), expected)
        model.save_pretrained(tmp_path)
        loaded = type(model).from_pretrained(tmp_path)
        assert_equal(dict(loaded.state_dict()), dict(model.state_dict()))

    def test_transformers_own_trainer_trains_it(self, model, processor, tmp_path):
        """Fine-tuning scripts collate `return_loss=True` with a batch, and read `outputs.loss`."""
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        inputs = self.training_batches(processor)["image_text"] | {"return_loss": True}
        before = copy.deepcopy(model)
        trainer = Trainer(
            model,
            TrainingArguments(
                tmp_path,
                max_steps=2,
                per_device_train_batch_size=1,
                gradient_accumulation_steps=2,
                logging_steps=1,
                learning_rate=1e-4,
                lr_scheduler_type="constant",
                remove_unused_columns=False,
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            ),
            train_dataset=[inputs] * 4,
            eval_dataset=[inputs] * 2,
            data_collator=lambda examples: dict(examples[0]),
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert losses[0] == pytest.approx(before.train()(**inputs).loss.item(), rel=1e-3)
        assert losses[1] < losses[0]
        with torch.no_grad():
            assert trainer.evaluate()["eval_loss"] == pytest.approx(model.eval()(**inputs).loss.item(), rel=1e-3)


def _training_pass(model: PreTrainedModel, inputs: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    """Loss and gradients, and how often linear layers ran."""
    calls = []
    hooks = [m.register_forward_hook(lambda *_: calls.append(1)) for m in model.modules() if isinstance(m, nn.Linear)]
    torch.manual_seed(0)
    loss = model.train()(**inputs, return_loss=True).loss
    loss.backward()
    for hook in hooks:
        hook.remove()
    results = {"loss": loss.detach()} | {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return results, len(calls)


class ProcessorContract(_Contract):
    """Texts with their languages and pictures of every kind, in one call; what is wrong is refused by name."""

    max_text_tokens = 64

    # ---- Texts ----

    def test_languages_may_be_given_once_or_for_each_text_in_any_case(self, processor):
        one = processor(text=TEXTS, language="de", return_tensors="pt")
        assert_equal(dict(processor(text=TEXTS, language="DE", return_tensors="pt")), dict(one))
        assert_equal(dict(processor(text=TEXTS, language=["de"] * len(TEXTS), return_tensors="pt")), dict(one))
        several = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
        upper = [tag.upper() for tag in LANGUAGES]
        assert_equal(dict(processor(text=TEXTS, language=upper, return_tensors="pt")), dict(several))

    def test_wrong_languages_are_refused(self, processor):
        with pytest.raises(LanguageTagError, match="'klingonish'"):
            processor(text="nuqneH", language="klingonish")
        with pytest.raises(LanguageTagError, match="'xx'"):
            processor(text=TEXTS[:2], language=["de", "xx"])
        with pytest.raises(ValueError, match="2 texts came with 3 language tags"):
            processor(text=TEXTS[:2], language=["de", "en", "fr"])
        with pytest.raises(ValueError, match="without text"):
            processor(images=pictures(1), language="de")

    def test_one_text_is_a_batch_of_one_and_padding_is_masked(self, processor):
        together = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
        assert together["input_ids"].shape == together["attention_mask"].shape
        for i, (text, language) in enumerate(zip(TEXTS, LANGUAGES, strict=True)):
            alone = processor(text=text, language=language, return_tensors="pt")
            length = together["attention_mask"][i].sum()
            assert alone["input_ids"].shape == (1, length)
            assert torch.equal(together["input_ids"][i, :length], alone["input_ids"][0])

    def test_long_texts_are_cut(self, processor):
        for language, text in CAPTIONS.items():
            tokens = processor(text=[text * 100, text], language=language, return_tensors="pt")
            assert tokens["input_ids"].shape == (2, self.max_text_tokens)
            shorter = processor(text=text * 100, language=language, max_length=9, return_tensors="pt")
            assert shorter["input_ids"].shape == (1, 9)
            assert shorter["input_ids"][0, -1] == tokens["input_ids"][0, -1]  # the end is marked all the same

    # ---- Pictures ----

    def test_pictures_of_every_mode(self, processor, tmp_path):
        picture = pictures(1)[0]
        for mode in ("L", "P", "CMYK", "RGBA"):
            converted = picture.convert(mode)
            self.assert_same_pixels(processor, converted, converted.convert("RGB"))
        clear = Image.new("RGBA", picture.size)
        self.assert_same_pixels(processor, clear, Image.new("RGB", picture.size, "white"))
        turned = picture.getexif()
        turned[0x0112] = 6  # orientation: the camera was held upright
        picture.save(tmp_path / "turned.png", exif=turned)
        with Image.open(tmp_path / "turned.png") as opened:
            self.assert_same_pixels(processor, opened, picture.transpose(Image.Transpose.ROTATE_270))

    def test_pictures_in_every_form(self, processor, tmp_path):
        picture, clear = pictures(1)[0], Image.new("RGBA", (40, 40))
        picture.save(tmp_path / "a.png")
        clear.save(tmp_path / "clear.png")
        for form in (
            np.asarray(picture),
            torch.from_numpy(np.array(picture)),
            tmp_path / "a.png",
            str(tmp_path / "a.png"),
        ):
            self.assert_same_pixels(processor, form, picture)
        self.assert_same_pixels(processor, str(tmp_path / "clear.png"), clear)
        with pytest.raises(ValueError, match=r"missing\.png"):
            processor(images=str(tmp_path / "missing.png"))

    @staticmethod
    def assert_same_pixels(processor: Any, one: Any, other: Any) -> None:
        pixels = [processor(images=image, return_tensors="pt")["pixel_values"] for image in (one, other)]
        assert pixels[0].shape[:2] == (1, 3)
        assert torch.equal(*pixels)

    # ---- Both ----

    def test_texts_and_pictures_go_together_or_alone_in_any_number(self, processor):
        text = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
        images = processor(images=pictures(2), return_tensors="pt")
        assert set(images) == {"pixel_values"} and "pixel_values" not in text
        both = processor(images=pictures(2), text=TEXTS, language=LANGUAGES, return_tensors="pt")
        assert_equal(dict(both), {**images, **text})

    def test_inputs_stay_as_they_are(self, processor):
        images, texts, languages = pictures(2), list(TEXTS), list(LANGUAGES)
        processor(images=images, text=texts, language=languages, return_tensors="pt")
        assert all(np.array_equal(a, b) for a, b in zip(images, pictures(2), strict=True))
        assert (texts, languages) == (TEXTS, LANGUAGES)

    @pytest.mark.parametrize("wrong", [{}, {"text": []}, {"images": []}, {"text": [None]}, {"text": [["a"]]}])
    def test_nothing_and_what_is_no_text_are_refused(self, processor, wrong):
        with pytest.raises(ValueError):
            processor(**wrong, **({"language": ["de"] * len(wrong["text"])} if "text" in wrong else {}))

    def test_saved_and_loaded_it_gives_the_same(self, processor, tmp_path):
        long = {"text": [text * 30 for text in TEXTS], "language": LANGUAGES, "return_tensors": "pt"}
        expected = dict(processor(images=pictures(2), **long))
        processor(**long, max_length=5)  # a tokenizer saves how it was last used; a processor is not to care
        processor.save_pretrained(tmp_path)
        for loader in (type(processor), AutoProcessor):
            loaded = loader.from_pretrained(tmp_path)
            assert type(loaded) is type(processor)
            assert_equal(dict(loaded(images=pictures(2), **long)), expected)
        for copied in (copy.deepcopy(processor), pickle.loads(pickle.dumps(processor))):
            assert_equal(dict(copied(images=pictures(2), **long)), expected)


# Run with the folder of a model, the inputs as JSON, a folder for the results and for the model saved again.
_WITHOUT_PACKAGE = """
import json, sys
from pathlib import Path
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoImageProcessor, AutoModel, AutoProcessor, pipeline

folder, again, inputs, results = sys.argv[1:]
inputs = json.loads(inputs)
images = [Image.open(path) for path in inputs.pop("images")]
in_pipelines = inputs.pop("in_pipelines")
trusting = {"trust_remote_code": True}

def answers(folder):
    model, processor = AutoModel.from_pretrained(folder, **trusting), AutoProcessor.from_pretrained(folder, **trusting)
    for loaded in (model, processor, AutoImageProcessor.from_pretrained(folder, **trusting)):
        assert type(loaded).__module__.startswith("transformers_modules."), type(loaded)
    scores = {}
    if in_pipelines:
        classify = pipeline("zero-shot-image-classification", model=folder, **trusting)
        ranking = classify(images[0], candidate_labels=inputs["text"])
        found = {entry["label"]: entry["score"] for entry in ranking}
        scores["scores"] = torch.tensor([found[text] for text in inputs["text"]])
    with torch.no_grad():
        output = model(**processor(images=images, **inputs, return_tensors="pt"))
    embeds = {name: output[name] for name in ("text_embeds", "image_embeds")}
    return model, processor, embeds | scores

model, processor, first = answers(folder)
processor.save_pretrained(again)
model.save_pretrained(again)
for name, value in answers(again)[2].items():
    assert torch.equal(value, first[name]), name
save_file(first, results)
"""


class PublishingContract(_Contract):
    """A saved folder is an ordinary Hugging Face model: with the package, without it, and in pipelines."""

    # transformers' pipelines read texts with a tokenizer, which a word-level method does not have.
    in_pipelines: ClassVar[bool] = True
    # In which languages a pipeline, which knows none, reads the captions.
    pipeline_languages: ClassVar[list[str]] = LANGUAGES

    @pytest.fixture(scope="class")
    @classmethod
    def published(cls, make, tmp_path_factory) -> Path:
        """Not to be changed."""
        folder = tmp_path_factory.mktemp(cls.factory) / "model"
        for part in make():
            part.save_pretrained(folder)
        return folder

    def test_loaded_with_the_package_to_the_same_bits(self, published, model, batch):
        for loader in (type(model), AutoModel):
            loaded, info = loader.from_pretrained(published, output_loading_info=True)
            assert type(loaded) is type(model) and not loaded.training
            assert not any(info.values()), info
            assert_equal(dict(loaded.state_dict()), dict(model.state_dict()))
            assert_equal(embeddings(loaded, batch), embeddings(model, batch))

    def test_loaded_in_half_precision(self, published, model, tmp_path):
        half = AutoModel.from_pretrained(published, dtype=torch.bfloat16)
        half.save_pretrained(tmp_path)
        again = AutoModel.from_pretrained(tmp_path, dtype="auto")
        assert_equal(
            dict(again.state_dict()),
            {n: v.bfloat16() if v.is_floating_point() else v for n, v in model.state_dict().items()},
        )

    def test_loaded_without_the_package_to_the_same_bits(
        self, published, parts, batch, run_without_babelens, tmp_path
    ):
        model, processor = parts
        paths = [str(tmp_path / f"{i}.png") for i in range(len(TEXTS))]
        for path, picture in zip(paths, pictures(len(TEXTS)), strict=True):
            picture.save(path)
        inputs = json.dumps({"images": paths, "text": TEXTS, "language": LANGUAGES, "in_pipelines": self.in_pipelines})
        run_without_babelens(_WITHOUT_PACKAGE, published, tmp_path / "again", inputs, tmp_path / "results")
        found = load_file(tmp_path / "results")
        expected = embeddings(model, batch)
        if self.in_pipelines:
            expected["scores"] = self.scores(model, processor, pictures(1)[0], "This is a photo of {}.")
        assert_equal(found, expected)
        assert {path.name for path in (tmp_path / "again").iterdir()} == {path.name for path in published.iterdir()}

    @torch.no_grad()
    def scores(self, model: PreTrainedModel, processor: Any, picture: Image.Image, template: str) -> Tensor:
        texts = [template.format(text) for text in TEXTS]
        output = model(**processor(images=picture, text=texts, language=self.pipeline_languages, return_tensors="pt"))
        return output.logits_per_image[0].softmax(0)

    def test_zero_shot_classification_with_labels_in_several_languages(self, published, parts):
        if not self.in_pipelines:
            pytest.skip("without a tokenizer")
        classify = pipeline("zero-shot-image-classification", model=str(published))
        for picture in pictures(2):
            ranking = classify(picture, candidate_labels=TEXTS, hypothesis_template="{}")
            found = {entry["label"]: entry["score"] for entry in ranking}
            expected = self.scores(*parts, picture, "{}")
            torch.testing.assert_close(torch.tensor([found[text] for text in TEXTS]), expected)

    def test_feature_extraction(self, published, model, processor, batch):
        if not self.in_pipelines:
            pytest.skip("without a tokenizer")
        texts = processor(text=TEXTS, language=self.pipeline_languages, return_tensors="pt")
        expected = embeddings(model, batch | dict(texts))
        found = pipeline("feature-extraction", model=str(published))(TEXTS)
        torch.testing.assert_close(torch.tensor(found)[:, 0], expected["text_embeds"])
        found = pipeline("image-feature-extraction", model=str(published))(pictures(len(TEXTS)))
        torch.testing.assert_close(torch.tensor(found)[:, 0], expected["image_embeds"])
