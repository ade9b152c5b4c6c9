import gc
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

# Before torch is loaded. Without it a product's last bit depends, on some processors, on where in memory the matrices
# lie, so that a model that was made and the same model loaded from its files differ by it.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

import torch
from transformers import PreTrainedTokenizerFast

pytest.register_assert_rewrite("tests.contracts")

import babelens  # noqa: E402
from babelens.modeling.acquirer import load_plain_state_dict  # noqa: E402
from babelens.processing.image_processing_mural import MuralImageProcessor  # noqa: E402
from babelens.processing.processing_liwe import frequent_characters  # noqa: E402
from babelens.processing.processing_smalr import frequent_words  # noqa: E402
from babelens.processing.tokenizer_training import train_wordpiece  # noqa: E402
from tests.contracts import CAPTIONS, TINY_RC3, drawn_images  # noqa: E402
from tests.support.bare_python import bare_python  # noqa: E402
from tests.support.made_once import MadeOnce, draw_maps, settle_batch_norm  # noqa: E402
from tests.support.tiny_layers import TINY_VISION  # noqa: E402
from tests.support.tiny_native import saved, student_processor, tiny_mla  # noqa: E402

pytest_plugins = ["tests.support.mla_training", "tests.support.retrieval_fixtures"]


def pytest_collection_finish() -> None:
    """Excludes imported modules from garbage collection: accelerate collects at the end of every training, and would
    look through a million of their objects each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Files need not reach the disk, which would take a tenth of the tests' time: nobody pulls the plug."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def modules_stay() -> Iterator[None]:
    """Excludes what the tests of a file have imported, too."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def dirty_memory() -> Iterator[None]:
    """Within a test, memory that nobody has written holds NaN, and in integers the largest number."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory and torch.empty(8).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(scope="session")
def run_without_babelens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Runs Python code in a copy of this environment without babelens, with these variables; returns its output."""
    with bare_python(tmp_path_factory.mktemp("bare")) as run:
        yield run


@pytest.fixture(scope="session")
def folder_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Saves a method's tiny model once, and returns its folder, which must not be changed."""
    root = tmp_path_factory.mktemp("methods")

    def folder(name: str) -> Path:
        return root / name if (root / name).exists() else saved(request.getfixturevalue(f"make_{name}")(), root / name)

    return folder


@pytest.fixture
def features_without_babelens(run_without_babelens: Callable[..., str], tmp_path: Path) -> Callable[..., torch.Tensor]:
    """The features that a folder's own code computes of texts in a language."""
    code = """
        import json, sys, torch
        from transformers import AutoModel, AutoProcessor
        folder, texts, language, file = sys.argv[1:]
        model = AutoModel.from_pretrained(folder, trust_remote_code=True)
        processor = AutoProcessor.from_pretrained(folder, trust_remote_code=True)
        inputs = processor(text=json.loads(texts), language=language, return_tensors="pt")
        with torch.no_grad():
            torch.save(model.get_text_features(**inputs).pooler_output, file)
    """

    def features(folder: Path, texts: list[str], language: str) -> torch.Tensor:
        run_without_babelens(dedent(code), folder, json.dumps(texts), language, tmp_path / "features.pt")
        return torch.load(tmp_path / "features.pt")

    return features


# The initial weights are wider than usual, so an untrained tower's outputs depend on its inputs.
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TINY_TEXT = SIZES | {"max_position_embeddings": 64, "initializer_range": 0.3}
WORD_LEVEL = {
    "hidden_size": 16,
    "initializer_range": 0.5,
    "vision_config": {"model_type": "align_vision_model"} | TINY_VISION,
}
CLIP_TEXT = SIZES | {"max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
TINY_CLIP = {
    "model_type": "clip",
    "projection_dim": 16,
    "text_config": CLIP_TEXT | {"initializer_factor": 10.0},
    "vision_config": SIZES | {"image_size": 32, "patch_size": 8, "initializer_factor": 10.0},
}
ACQUIRED = [language for language in CAPTIONS if language != "en"]


def _tokenizer() -> PreTrainedTokenizerFast:
    return train_wordpiece(CAPTIONS.values(), 200, min_frequency=1)


def _image_processor() -> MuralImageProcessor:
    return MuralImageProcessor(size={"height": 36, "width": 36}, crop_size={"height": 32, "width": 32})


def _settled(model: Any, processor: Any) -> tuple[Any, Any]:
    settle_batch_norm(model, processor(images=drawn_images(16), return_tensors="pt")["pixel_values"])
    return model, processor


def two_towers(method: str, **options: Any) -> tuple[Any, Any]:
    """A MURAL or an ETCL. Keyword arguments are the configuration's; `text_config` adds to the tiny tower's, and
    `vision_config` replaces the tiny EfficientNet."""
    parts = (getattr(babelens, f"{method}{kind}") for kind in ("Model", "Config", "Processor"))
    model_class, config_class, processor_class = parts
    processor = processor_class(_image_processor(), _tokenizer())
    text = TINY_TEXT | {"vocab_size": len(processor.tokenizer)} | options.pop("text_config", {})
    towers = {"text_config": text, "vision_config": TINY_VISION}
    torch.manual_seed(0)
    return _settled(model_class(config_class(**towers | {"temperature_init_value": 0.1} | options)), processor)


def _mla(**options: Any) -> tuple[Any, Any]:
    native = train_wordpiece([CAPTIONS["en"]], 60, min_frequency=1)
    learned = {"languages": ACQUIRED, "max_text_length": 64}
    processor = babelens.MlaProcessor(_image_processor(), native, _tokenizer(), **learned)
    text = TINY_CLIP["text_config"] | {"vocab_size": len(native)}
    torch.manual_seed(0)
    defaults = {
        "base_config": TINY_CLIP | {"text_config": text},
        "languages": ACQUIRED,
        "acquirer_size": 8,
        "embedding_size": 12,
        "vocab_size": len(processor.multilingual_tokenizer),
        "sep_token_id": processor.multilingual_tokenizer.sep_token_id,
    }
    return babelens.MlaModel(babelens.MlaConfig(**defaults | options)).eval(), processor


def _mla_on_mural(**options: Any) -> tuple[Any, Any]:
    """Linear acquirers in a MURAL, whose text tower is BERT."""
    return tiny_mla(two_towers("Mural"), _tokenizer(), **{"languages": ACQUIRED, "acquirer": "linear"} | options)


def _mla_student(**options: Any) -> tuple[Any, Any]:
    mla, mla_processor = _mla()
    native, tokenizer = mla.unload(), mla_processor.multilingual_tokenizer
    torch.manual_seed(0)
    defaults = {"text_config": TINY_TEXT | {"vocab_size": len(tokenizer)}, "base_config": native.config}
    defaults |= {"languages": ACQUIRED, "acquirer_size": 8}
    model = babelens.MlaStudentModel(babelens.MlaStudentConfig(**defaults | options))
    load_plain_state_dict(model.native_model, native.state_dict())
    return model.eval(), student_processor(model.config, mla_processor, tokenizer)


def _ridge(*, encoder: bool = False, glossaries: bool = False) -> tuple[Any, Any]:
    """Maps for the tiny CLIP; with `encoder` the tiny BERT reads texts, with `glossaries` the CLIP reads glosses."""
    mla, mla_processor = _mla()
    native, tokenizer = mla.unload(), mla_processor.multilingual_tokenizer
    torch.manual_seed(0)
    text = TINY_TEXT | {"vocab_size": len(tokenizer), "model_type": "bert"} if encoder else None
    options: dict[str, Any] = {"text_pooling": "mean", "ngram_rows": 64, "rank": 8, "languages": ACQUIRED}
    options["gloss_weights"] = [0.5 * index for index in range(1 + len(ACQUIRED))] if glossaries else []
    model = babelens.RidgeModel(babelens.RidgeConfig(base_config=native.config, text_config=text, **options))
    load_plain_state_dict(model.native_model, native.state_dict())
    draw_maps(model)
    read: dict[str, Any] = {"languages": ACQUIRED, "max_text_length": 64}
    if glossaries:
        read["glossaries"] = {ACQUIRED[0]: {"ein": "a", "hund": "dog", "rotes": "red", "auto": "car", "im": ""}}
    encoder_tokenizer = tokenizer if encoder else None
    processor = babelens.RidgeProcessor.for_native(native.config, mla_processor, encoder_tokenizer, **read)
    return model.eval(), processor


def _smalr(**options: Any) -> tuple[Any, Any]:
    vocabularies = {language: frequent_words([text], language) for language, text in CAPTIONS.items()}
    torch.manual_seed(0)
    defaults = WORD_LEVEL | {
        "languages": list(vocabularies),
        "vocabulary_sizes": [len(words) for words in vocabularies.values()],
        "specific_words": 2,
        "latent_tokens": 6,
        "word_size": 5,
        "image_hidden_size": 16,
        "mask_probability": 0.0,
    }
    model = babelens.SmalrModel(babelens.SmalrConfig(**defaults | options))
    return _settled(model, babelens.SmalrProcessor(_image_processor(), vocabularies))


def _liwe(**options: Any) -> tuple[Any, Any]:
    characters = frequent_characters({language: [text] for language, text in CAPTIONS.items()})
    processor = babelens.LiweProcessor(_image_processor(), characters, word_length=12)
    torch.manual_seed(0)
    words = {"character_size": 4, "word_length": 12, "word_hidden_sizes": [10], "word_size": 12}
    defaults = WORD_LEVEL | words | {"vocab_size": processor.vocab_size}
    return _settled(babelens.LiweModel(babelens.LiweConfig(**defaults | options)), processor)


def _rc3(model_class: Any = babelens.Rc3Model, **options: Any) -> tuple[Any, None]:
    """Its inputs are `visio_textual_batch`'s, which need no processor."""
    torch.manual_seed(0)
    return model_class(babelens.Rc3Config(**TINY_RC3 | options)).eval(), None


def _made_once(build: Callable[..., tuple[Any, Any]], *arguments: Any) -> Any:
    return pytest.fixture(scope="session")(
        lambda: MadeOnce(lambda *given, **options: build(*arguments, *given, **options))
    )


make_mural = _made_once(two_towers, "Mural")
make_etcl = _made_once(two_towers, "Etcl")
make_mla = _made_once(_mla)
make_mla_on_mural = _made_once(_mla_on_mural)
make_mla_student = _made_once(_mla_student)
make_ridge = _made_once(_ridge)
make_smalr = _made_once(_smalr)
make_liwe = _made_once(_liwe)
make_rc3 = _made_once(_rc3)
