"""What the tests of several rooms share: a tiny MURAL with its processor, and a Python that lacks babelens."""

import gc
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

# Before torch is loaded. Without it a product's last bit depends, on some processors, on where in memory the matrices
# lie, so that a model that was made and the same model loaded from its files differ by it.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

import torch
from transformers import PreTrainedTokenizerFast

pytest.register_assert_rewrite("tests.contracts")

from babelens import (  # noqa: E402
    EtclConfig,
    EtclModel,
    EtclProcessor,
    LiweConfig,
    LiweModel,
    LiweProcessor,
    MlaConfig,
    MlaModel,
    MlaProcessor,
    MlaStudentConfig,
    MlaStudentModel,
    MlaStudentProcessor,
    MuralConfig,
    MuralModel,
    MuralProcessor,
    Rc3Config,
    Rc3Model,
    RidgeConfig,
    RidgeModel,
    RidgeProcessor,
    SmalrConfig,
    SmalrModel,
    SmalrProcessor,
)
from babelens.modeling.acquirer import load_plain_state_dict  # noqa: E402
from babelens.processing.image_processing_mural import MuralImageProcessor  # noqa: E402
from babelens.processing.processing_liwe import frequent_characters  # noqa: E402
from babelens.processing.processing_smalr import frequent_words  # noqa: E402
from babelens.processing.tokenizer_training import train_wordpiece  # noqa: E402
from tests.contracts import CAPTIONS, TINY_RC3, drawn_images  # noqa: E402
from tests.support.bare_python import bare_python  # noqa: E402
from tests.support.made_once import MadeOnce  # noqa: E402
from tests.support.tiny_native import student_processor  # noqa: E402


def pytest_collection_finish() -> None:
    """Excludes what has been imported from garbage collection: accelerate collects at the end of every training, and
    would look through a million objects of modules each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Nobody pulls the plug in the tests: files need not have reached the disk, which takes a tenth of their time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def modules_stay() -> Iterator[None]:
    """Excludes what the tests of a file have imported, too."""
    yield
    gc.collect()
    gc.freeze()


# Tiny dual encoders and small corpora, for the tests of inference, evaluation and the command line.
pytest_plugins = ["tests.support.mla_training", "tests.support.retrieval_fixtures"]

# The initial weights are wider than usual, so that what an untrained tower says depends on what it reads.
TINY_TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
# Two stages of an EfficientNet. All seven, as narrow as a test needs them, magnify rounding errors a thousandfold.
TINY_VISION = {
    "image_size": 32,
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "kernel_sizes": [3, 3],
    "in_channels": [32, 16],
    "out_channels": [16, 24],
    "depthwise_padding": [],
    "strides": [1, 2],
    "num_block_repeats": [1, 1],
    "expand_ratios": [1, 6],
}


def settle_batch_norm(model: torch.nn.Module, pixel_values: torch.Tensor) -> None:
    """Gives batch norm the statistics of images. With the initial ones, an untrained EfficientNet outputs zeros."""
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model.train()(pixel_values=pixel_values)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def _tiny_tokenizer() -> PreTrainedTokenizerFast:
    return train_wordpiece(CAPTIONS.values(), 200, min_frequency=1)


def _tiny_image_processor() -> MuralImageProcessor:
    return MuralImageProcessor(size={"height": 36, "width": 36}, crop_size={"height": 32, "width": 32})


def _tiny_two_towers(model_class: Any, config_class: Any, processor_class: Any, **options: Any) -> tuple[Any, Any]:
    processor = processor_class(_tiny_image_processor(), _tiny_tokenizer())
    text = TINY_TEXT | {"vocab_size": len(processor.tokenizer)} | options.pop("text_config", {})
    towers = {"text_config": text, "vision_config": TINY_VISION}
    torch.manual_seed(0)
    model = model_class(config_class(**towers | {"temperature_init_value": 0.1} | options))
    settle_batch_norm(model, processor(images=drawn_images(16), return_tensors="pt")["pixel_values"])
    return model, processor


@pytest.fixture(scope="session")
def make_mural() -> Callable[..., tuple[MuralModel, MuralProcessor]]:
    """Builds the same tiny MURAL, a model in eval mode and its processor, at every call.

    Keyword arguments are the configuration's; those in `text_config` are added to the tiny tower's, a `vision_config`
    takes the place of the tiny EfficientNet.
    """
    return MadeOnce(partial(_tiny_two_towers, MuralModel, MuralConfig, MuralProcessor))


@pytest.fixture(scope="session")
def make_etcl() -> Callable[..., tuple[EtclModel, EtclProcessor]]:
    """The same for ETCL."""
    return MadeOnce(partial(_tiny_two_towers, EtclModel, EtclConfig, EtclProcessor))


TINY_CLIP = {
    "projection_dim": 16,
    "text_config": {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "initializer_factor": 10.0,
    },
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
        "initializer_factor": 10.0,
    },
}


def _tiny_mla(**options: Any) -> tuple[MlaModel, MlaProcessor]:
    image_processor = _tiny_image_processor()
    languages = [language for language in CAPTIONS if language != "en"]
    native = train_wordpiece([CAPTIONS["en"]], 60, min_frequency=1)
    processor = MlaProcessor(image_processor, native, _tiny_tokenizer(), languages=languages, max_text_length=64)
    text = TINY_CLIP["text_config"] | {"vocab_size": len(native)}
    torch.manual_seed(0)
    config = MlaConfig(
        **{
            "base_config": TINY_CLIP | {"model_type": "clip", "text_config": text},
            "languages": languages,
            "acquirer_size": 8,
            "embedding_size": 12,
            "vocab_size": len(processor.multilingual_tokenizer),
            "sep_token_id": processor.multilingual_tokenizer.sep_token_id,
        }
        | options
    )
    return MlaModel(config).eval(), processor


@pytest.fixture(scope="session")
def make_mla() -> Callable[..., tuple[MlaModel, MlaProcessor]]:
    """Builds the same tiny MLA on a tiny CLIP at every call; keyword arguments are the configuration's."""
    return MadeOnce(_tiny_mla)


@pytest.fixture(scope="session")
def make_mla_on_mural(make_mural: Any) -> Callable[..., tuple[MlaModel, MlaProcessor]]:
    """As `make_mla`, on the tiny MURAL, whose text tower is BERT, with linear acquirers."""

    def make(**options: Any) -> tuple[MlaModel, MlaProcessor]:
        native, native_processor = make_mural()
        languages = [language for language in CAPTIONS if language != "en"]
        tokenizer = _tiny_tokenizer()
        processor = MlaProcessor.for_native(native.config, native_processor, tokenizer, languages=languages)
        vocabulary = {"vocab_size": len(tokenizer), "sep_token_id": tokenizer.sep_token_id}
        torch.manual_seed(0)
        defaults = {"languages": languages, "acquirer": "linear", "embedding_size": 12} | vocabulary
        return MlaModel.from_native(native, **defaults | options), processor

    return MadeOnce(make)


@pytest.fixture(scope="session")
def make_mla_student() -> Callable[..., tuple[MlaStudentModel, MlaStudentProcessor]]:
    """Builds the same tiny BERT beside the tiny CLIP at every call; keyword arguments are the configuration's."""

    def make(**options: Any) -> tuple[MlaStudentModel, MlaStudentProcessor]:
        mla, mla_processor = _tiny_mla()
        native, tokenizer = mla.unload(), mla_processor.multilingual_tokenizer
        torch.manual_seed(0)
        text = {"text_config": TINY_TEXT | {"vocab_size": len(tokenizer)}}
        languages = {"languages": mla.config.languages, "acquirer_size": 8}
        model = MlaStudentModel(MlaStudentConfig(**{"base_config": native.config} | text | languages | options))
        load_plain_state_dict(model.native_model, native.state_dict())
        return model.eval(), student_processor(model.config, mla_processor, tokenizer)

    return MadeOnce(make)


@pytest.fixture(scope="session")
def make_ridge() -> Callable[..., tuple[RidgeModel, RidgeProcessor]]:
    """Builds the same maps for the tiny CLIP at every call; `encoder=True` has the tiny BERT read the texts, too, and
    `glossaries=True` the tiny CLIP what a small glossary makes of them."""

    def make(*, encoder: bool = False, glossaries: bool = False) -> tuple[RidgeModel, RidgeProcessor]:
        mla, mla_processor = _tiny_mla()
        native, tokenizer = mla.unload(), mla_processor.multilingual_tokenizer
        torch.manual_seed(0)
        text = TINY_TEXT | {"vocab_size": len(tokenizer), "model_type": "bert"} if encoder else None
        languages = list(mla.config.languages)
        options: dict[str, Any] = {"text_pooling": "mean", "ngram_rows": 64, "rank": 8, "languages": languages}
        options["gloss_weights"] = [0.5 * index for index in range(1 + len(languages))] if glossaries else []
        model = RidgeModel(RidgeConfig(base_config=native.config, text_config=text, **options))
        load_plain_state_dict(model.native_model, native.state_dict())
        for name, values in model.maps.named_buffers():
            if name == "ngrams":
                values.copy_(torch.randint(-127, 128, values.shape))
            elif name != "importance":
                values.copy_(torch.randn(values.shape))
        read: dict[str, Any] = {"languages": languages, "max_text_length": 64}
        if glossaries:
            read["glossaries"] = {languages[0]: {"ein": "a", "hund": "dog", "rotes": "red", "auto": "car", "im": ""}}
        processor = RidgeProcessor.for_native(native.config, mla_processor, tokenizer if encoder else None, **read)
        return model.eval(), processor

    return MadeOnce(make)


@pytest.fixture
def dirty_memory() -> Iterator[None]:
    """Within a test, memory that nobody has written holds NaN, and in integers the largest number."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory and torch.empty(8).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(scope="session")
def settle() -> Callable[[torch.nn.Module, torch.Tensor], None]:
    return settle_batch_norm


@pytest.fixture(scope="session")
def run_without_babelens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Runs Python code in a virtual environment that has what this one has, except babelens; returns what it prints.
    Keyword arguments are further variables of its environment."""
    with bare_python(tmp_path_factory.mktemp("bare")) as python:
        yield python.run


@pytest.fixture(scope="session")
def make_smalr() -> Callable[..., tuple[SmalrModel, SmalrProcessor]]:
    """Builds the same tiny SMALR on a tiny EfficientNet at every call; keyword arguments are the configuration's."""

    def make(**options: Any) -> tuple[SmalrModel, SmalrProcessor]:
        vocabularies = {language: frequent_words([text], language) for language, text in CAPTIONS.items()}
        processor = SmalrProcessor(_tiny_image_processor(), vocabularies)
        torch.manual_seed(0)
        config = SmalrConfig(
            **{
                "languages": list(vocabularies),
                "vocabulary_sizes": [len(words) for words in vocabularies.values()],
                "specific_words": 2,
                "latent_tokens": 6,
                "word_size": 5,
                "hidden_size": 16,
                "image_hidden_size": 16,
                "initializer_range": 0.5,
                "mask_probability": 0.0,
                "vision_config": {"model_type": "align_vision_model"} | TINY_VISION,
            }
            | options
        )
        model = SmalrModel(config)
        settle_batch_norm(model, processor(images=drawn_images(16), return_tensors="pt")["pixel_values"])
        return model, processor

    return MadeOnce(make)


@pytest.fixture(scope="session")
def make_liwe() -> Callable[..., tuple[LiweModel, LiweProcessor]]:
    """Builds the same tiny LIWE on a tiny EfficientNet at every call; keyword arguments are the configuration's."""

    def make(**options: Any) -> tuple[LiweModel, LiweProcessor]:
        characters = frequent_characters({language: [text] for language, text in CAPTIONS.items()})
        processor = LiweProcessor(_tiny_image_processor(), characters, word_length=12)
        torch.manual_seed(0)
        config = LiweConfig(
            **{
                "vocab_size": processor.vocab_size,
                "character_size": 4,
                "word_length": 12,
                "word_hidden_sizes": [10],
                "word_size": 12,
                "hidden_size": 16,
                "initializer_range": 0.5,
                "vision_config": {"model_type": "align_vision_model"} | TINY_VISION,
            }
            | options
        )
        model = LiweModel(config)
        settle_batch_norm(model, processor(images=drawn_images(16), return_tensors="pt")["pixel_values"])
        return model, processor

    return MadeOnce(make)


@pytest.fixture(scope="session")
def make_rc3() -> Callable[..., tuple[Any, None]]:
    """Builds the same tiny model of RC3 at every call; keyword arguments are the configuration's. Its inputs are
    `visio_textual_batch`'s, which need no processor."""

    def make(model_class: Any = Rc3Model, **options: Any) -> tuple[Any, None]:
        torch.manual_seed(0)
        return model_class(Rc3Config(**TINY_RC3 | options)).eval(), None

    return MadeOnce(make)
