"""Wrong recipes: each ends in one error that names the file and the key, before anything is trained."""

import copy
from functools import partial

import pytest
import yaml
from tiny_native import saved, tiny_clip
from tiny_recipes import mla, mural, rc3, smalr, student
from tiny_training import write_shapes
from transformers.trainer_callback import CallbackHandler

from babelens.configuration.errors import BabelensError, RecipeError
from babelens.workflows.base import RecipeRun
from babelens.workflows.loading import load_recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"), captioned=("en", "de"))
    saved(tiny_clip(), folder / "clip")
    return folder


def set_in(content, dotted, value):
    """`content` with a value at a dotted key, whatever stands on the way."""
    content = copy.deepcopy(content)
    *parents, key = dotted.split(".")
    section = content
    for parent in parents:
        section = section.setdefault(parent, {})
    section[key] = value
    return content


@pytest.fixture
def refuse(tmp_path):
    """The error of a recipe that is loaded and run."""
    return partial(_refused, tmp_path)


def _refused(folder, text, overrides=None):
    file = folder / "wrong.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CallbackHandler, "on_step_begin", _not_trained)
        with pytest.raises(BabelensError) as error:
            RecipeRun(load_recipe(file, overrides), folder / "output", "babelens train wrong.yaml").train()
    assert not list((folder / "output").rglob("*.safetensors"))
    return error.value


def _not_trained(*arguments, **options):
    raise AssertionError("a wrong recipe is trained")


STAGE = {"name": "a", "tasks": ["image_text"]}

MURAL = [
    # the method and its model
    ("method", "murall", "method: there is no 'murall'; did you mean 'mural'"),
    ("method", 5, "method must be a text, not 5"),
    ("method", None, "method must be a text, not None"),
    ("method", "no", "method: there is no 'no'"),
    ("method", "etcl", "model.preset: 'mural-tiny' is a preset of mural, not of etcl"),
    ("model", None, "model must be a mapping, not None"),
    ("model", "mural-tiny", "model must be a mapping, not 'mural-tiny'"),
    ("model.preset", "mural-tinny", "model.preset: there is no 'mural-tinny'; did you mean 'mural-tiny'"),
    ("model.preset", "etcl-tiny", "model.preset: 'etcl-tiny' is a preset of etcl, not of mural"),
    ("model.preset", ["mural-tiny"], "model.preset must be a text"),
    ("model.preset", None, "model: give either a preset, or image and text, or from_pretrained"),
    ("model.from_pretrained", "x", "model: give either a preset, or image and text, or from_pretrained"),
    ("model.fresh_heads", True, "model: fresh_heads: a new model has no other heads; it is for from_pretrained"),
    ("model.fresh_heads", "some", "model.fresh_heads must be true or false, not 'some'"),
    ("model.overrides", ["hidden_size"], "model.overrides must be a mapping"),
    ("model.overrides", {"projektion_dim": 8}, "model.overrides: .*'projektion_dim'"),
    ("model.overrides", {"text_config": {"hiden_size": 8}}, "model.overrides: .*text_config.hiden_size.*did you mean"),
    ("model.overrides", {"text_config": {"hidden_size": "8"}}, "model.overrides: .*hidden_size"),
    ("model.overrides", {"vision_config": {"model_type": "resnett"}}, "model.overrides: vision_config.*'resnett'"),
    ("model.overrides", {"temperature_init_value": "warm"}, "model.overrides: .*temperature_init_value"),
    ("model.presett", "x", "unknown key model.presett; did you mean 'preset'"),
    ("metod", "mural", "unknown key metod; did you mean 'method'"),
    # sections that the method does not read
    ("words", {"min_frequency": 1}, "words: mural reads nothing there"),
    ("text_model", {"preset": "mkd-tiny"}, "text_model: mural reads nothing there"),
    ("multilingual_tokenizer", {"vocab_size": 9}, "multilingual_tokenizer: mural reads nothing there"),
    ("backbone", "runs/clip", "backbone: mural reads nothing there"),
    ("regions", {"grid": 2}, "regions: mural reads nothing there"),
    ("test", {"x": {"source": "emoji"}}, "test: mural reads nothing there"),
    ("task", "visual-entailment", "task: mural is not fine-tuned on tasks"),
    # the processor
    ("tokenizer", None, "tokenizer: a model trained from scratch needs one"),
    ("tokenizer", {}, "tokenizer: give either vocab_size or from_pretrained"),
    ("tokenizer.vocab_size", 0, "tokenizer: vocab_size must be at least 1 word piece, not 0"),
    ("tokenizer.vocab_size", "many", "tokenizer.vocab_size must be a whole number, not 'many'"),
    ("tokenizer.vocab_size", 8.5, "tokenizer.vocab_size must be a whole number, not 8.5"),
    ("tokenizer.vocab_size", True, "tokenizer.vocab_size must be a whole number, not True"),
    ("tokenizer.lowercase", "never", "tokenizer.lowercase must be true or false, not 'never'"),
    ("tokenizer.languages", ["xx"], "tokenizer: languages: 'xx' names no registered language"),
    ("tokenizer.languages", ["sw"], "tokenizer.languages: the data has no text in 'sw', only in de, en, fr"),
    ("tokenizer.languages", "en", "tokenizer.languages must be a list of texts, not 'en'"),
    ("tokenizer.languages", [], "tokenizer: languages is empty"),
    ("tokenizer.continuing_subword_prefix", 3, "tokenizer.continuing_subword_prefix must be a text"),
    ("image", {"resize": 32, "crop": 36}, "image: crop: .*not 36"),
    ("image.crop", 0, "image: crop: .*not 0"),
    ("image.crop", "32", "image.crop must be a whole number, not '32'"),
    # the data
    ("train", None, "train must be a mapping, not None"),
    ("train", {}, "train: there are no data"),
    ("train", ["emoji"], "train must be a mapping"),
    ("train.image_text", "emoji", "train.image_text must be a mapping, not 'emoji'"),
    ("train.image_text", None, "train.image_text must be a mapping, not None"),
    ("train.image_text", {"languages": ["en"]}, "train.image_text.source is missing"),
    ("train.image_text.source", "", "train.image_text: source is empty"),
    ("train.image_text.source", 7, "train.image_text.source must be a text, not 7"),
    ("train.image_text.source", "/nowhere/at/all", "/nowhere/at/all: no such file or folder"),
    ("train.image_text.langauges", ["en"], "unknown key train.image_text.langauges; did you mean 'languages'"),
    ("train.image_text.languages", "en", "train.image_text.languages must be a list of texts"),
    ("train.image_text.languages", [False], r"train.image_text.languages must be a list of texts, not \[False\]"),
    ("train.image_text.languages", ["english"], "train.image_text: languages: 'english' is not a language tag"),
    ("train.image_text.languages", ["no"], "train.image_text.languages: the data has no text in 'no'"),
    ("train.image_text.languages", ["fr"], "train.image_text.languages: the data has no text in 'fr'"),
    ("train.image_text.languages", [], "train.image_text: languages is empty"),
    ("train.image_text.pairs", [["en", "de"]], "train.image_text.pairs: image_text takes captions by languages"),
    ("train.text_text.pairs", [["en", "EN"]], "no row has texts in en with en"),  # one caption has no co-caption
    ("train.text_text.pairs", [["en"]], r"train.text_text: pairs: \['en'\] is no pair"),
    ("train.text_text.pairs", ["en", "fr"], "train.text_text.pairs must be a list of"),
    ("train.text_text.pairs", [], "train.text_text: pairs: .* has no pair"),
    ("train.text_text.pairs", {"from": ["en"]}, "train.text_text: pairs: a mapping has from and to"),
    ("train.text_text.pairs", {"from": ["en"], "to": ["en"]}, "train.text_text: pairs: .* has no pair"),
    ("train.text_text.pairs", {"from": ["en"], "to": []}, "train.text_text: pairs.to is empty"),
    ("train.text_text.pairs", [["en", "ja"]], "train.text_text.pairs: the data has no text in 'ja'"),
    ("train.text_text.pairs", [["en", "xx"]], "train.text_text: pairs: 'xx' names no registered language"),
    ("train.image_text.options", ["streaming"], "train.image_text.options must be a mapping"),
    ("train.image_text.options", {"streming": True}, "train.image_text.options.streming; did you mean 'streaming'"),
    ("train.image_text.options", {"streaming": "maybe"}, "train.image_text.options.streaming must be true or false"),
    ("train.image_text.options", {"check_images": False, "on_bad_image": "skip"}, "on_bad_image='skip' needs"),
    ("train.image_text.options", {"split": 3}, "train.image_text.options.split must be a text"),
    ("train.image_text.license", "my license", "train.image_text.license: .*'my license'"),
    ("train.image_text.license", 4.0, "train.image_text.license must be a text, not 4.0"),
    ("train.image_txt", {"source": "emoji"}, "train.image_txt: mural has no such task; it has image_text, text_text"),
    ("validation", [], r"validation must be a mapping, not \[\]"),
    ("validation.options", {"splitt": "x"}, "validation.options.splitt; did you mean 'split'"),
    # the stages
    ("stages", {"name": "a"}, "stages must be a list of"),
    ("stages", ["a"], r"stages\[0\] must be a mapping, not 'a'"),
    ("stages", [STAGE | {"name": "../../evil"}], "stages: '../../evil' must be a plain folder name"),
    ("stages", [STAGE | {"name": "/tmp/evil"}], "stages: '/tmp/evil' must be a plain folder name"),
    ("stages", [STAGE | {"name": ".."}], "stages: '..' must be a plain folder name"),
    ("stages", [STAGE | {"name": "a\nb"}], "must be a plain folder name"),
    ("stages", [STAGE | {"name": "checkpoint-3"}], "'checkpoint-3' must be a plain folder name"),
    ("stages", [STAGE | {"name": "processor"}], "'processor' must be a plain folder name"),
    ("stages", [STAGE | {"name": 1}], r"stages\[0\].name must be a text, not 1"),
    ("stages", [STAGE | {"tasks": "image_text"}], r"stages\[0\].tasks must be a list of texts"),
    ("stages", [STAGE | {"languages": ["fr"]}], "stage 'a': languages: the data has no text in 'fr'"),
    ("stages", [STAGE | {"languages": ["xx"]}], r"stages\[0\]: languages: 'xx' names no"),
    ("stages", [STAGE | {"training": {"max_steps": "x"}}], "stage 'a': training.max_steps must be a whole number"),
    ("stages", [STAGE, STAGE | {"name": "b", "training": {"seed": -1}}], "stage 'b': training.seed=-1"),
    # what is needed at the end
    ("license", "my license", "license: 'my license' is no license"),
    ("license", "Apache 2.0", "license: 'Apache 2.0' .*did you mean 'apache-2.0'"),
    ("license", ["mit"], "license must be a text"),
    ("license_name", "mine", "license_name: it is for license: other"),
    ("report", "emojii", "report: there is no 'emojii'; did you mean 'emoji'"),
    ("report", True, "report must be a text, not True"),
    ("unseen_languages", ["it"], "unseen_languages: they are for the report"),
    ("unseen_languages", ["xx"], "unseen_languages: 'xx' names no"),
    ("unseen_languages", "it", "unseen_languages must be a list of texts"),
    # the trainer's arguments
    ("training", 1, "training must be a mapping, not 1"),
    ("training", None, "training must be a mapping, not None"),
    ("training.max_stepps", 3, "unknown key training.max_stepps; did you mean 'max_steps'"),
    ("training.output_dir", "x", "unknown key training.output_dir"),
    ("training.max_steps", "many", "training.max_steps must be a whole number, not 'many'"),
    ("training.max_steps", 0, "training.max_steps=0 must be positive"),
    ("training.max_steps", 1e3, "training.max_steps must be a whole number, not 1000.0"),
    ("training.num_train_epochs", 0, "training.num_train_epochs=0 must be positive"),
    ("training.learning_rate", "fast", "training.learning_rate must be a number, not 'fast'"),
    ("training.learning_rate", float("nan"), "training.learning_rate must be a finite number, not nan"),
    ("training.learning_rate", float("inf"), "training.learning_rate must be a finite number, not inf"),
    ("training.learning_rate", -1, "training.learning_rate=-1 must be 0 or more"),
    ("training.learning_rate", True, "training.learning_rate must be a number, not True"),
    ("training.per_device_train_batch_size", 0, "training.per_device_train_batch_size=0 must be positive"),
    ("training.per_device_train_batch_size", "8", "training.per_device_train_batch_size must be a whole number"),
    ("training.per_device_train_batch_size", 999, "examples, fewer than a batch of 999 .per_device_train_batch_size"),
    ("training.gradient_accumulation_steps", 0, "training.gradient_accumulation_steps=0 must be positive"),
    ("training.seed", -1, "training.seed=-1 must be 0 or more"),
    ("training.seed", 2**32, r"training.seed=4294967296 must be below 2\*\*32"),
    ("training.seed", 1.5, "training.seed must be a whole number"),
    ("training.adam_beta2", 1.0, "training.adam_beta2=1.0 must be at least 0 and below 1"),
    ("training.weight_decay", -0.1, "training.weight_decay=-0.1 must be 0 or more"),
    ("training.save_steps", 0, "training.save_steps=0 must be positive"),
    ("training.use_cpu", "cpu", "training.use_cpu must be true or false, not 'cpu'"),
    ("training.optim", "lam", "training.optim: there is no 'lam'; did you mean 'lamb'"),
    ("training.lr_scheduler_type", "cosin", "training.lr_scheduler_type: there is no 'cosin'; did you mean 'cosine'"),
    ("training.lr_scheduler_type", "cosine_with_min_lr", "training.lr_scheduler_kwargs: "),
    ("training.lr_scheduler_kwargs", {"x": 1}, "training.lr_scheduler_kwargs: "),
    ("training.save_strategy", False, "training.save_strategy must be a text, not False"),
    ("training.save_strategy", "never", "training.save_strategy: there is no 'never'"),
    ("training.report_to", "wandbb", "training.report_to: there is no 'wandbb'; did you mean 'wandb'"),
    ("training.dataloader_persistent_workers", True, "training.dataloader_persistent_workers: there are none"),
    ("training.load_best_model_at_end", True, "training: .*load_best_model_at_end"),
    ("training.metric_for_best_model", "accuracy", "training.metric_for_best_model=accuracy: there is no such"),
    ("training.eval_languages", ["fr"], "training.eval_languages: the data has no text in 'fr'"),
    ("validation.options", {"streaming": True}, "validation.options.streaming: evaluation ranks"),
    ("training.languages", ["xx"], "training.languages: 'xx' names no"),
    (
        "training",
        {"task_weights": {"text_text": 0.1}, "task_learning_rates": {"text_text": 0.1}},
        "training: task_weights {text_text: 0.1} would have no effect",
    ),
    ("training.task_weights", {"image_txt": 1}, "training.task_weights: there is no 'image_txt'"),
    ("training.task_weights", {"image_text": "1"}, "training.task_weights must be a mapping of names to numbers"),
    ("training.learning_rate_mapping", {"[": 1e-3}, "training.learning_rate_mapping: .* no regular expression"),
    ("training.learning_rate_mapping", {"nothing": 1e-3}, "learning_rate_mapping: no parameter is trained"),
    ("training.image_augmentation", {"color_jiter": 1}, "training.image_augmentation.color_jiter; did you mean"),
    ("training.image_augmentation", {"scale": 2}, "training.image_augmentation.scale must be a list of numbers"),
    ("training.image_augmentation", {"scale": [2]}, "training.image_augmentation.scale: .* no range"),
    ("training.image_augmentation", {"grayscale": 2}, "training.image_augmentation: grayscale"),
    ("training.text_augmentation", {"tasks": ["x"]}, "training.text_augmentation: there is no 'x'"),
    ("training.embed_chunk_size", 0, "training: embed_chunk_size=0 must be a positive number"),
]

TWO = [STAGE, {"name": "b", "tasks": ["image_text"], "training": {"per_device_train_batch_size": 99}}]
OWN_SIZE = [STAGE, {"name": "b", "tasks": ["image_text"], "training": {"task_batch_sizes": {"image_text": 77}}}]

OTHERS = [
    (mural, "stages", TWO, "stage 'b': train.image_text has 32 examples, fewer than a batch of 99"),
    (mural, "stages", OWN_SIZE, r"stage 'b': train.image_text has 32 examples, .* of 77 .task_batch_sizes.image_text"),
    (mural, "training.task_batch_sizes", {"text": 8}, "training.task_batch_sizes: there is no 'text'"),
    (mural, "training.task_batch_sizes", {"text_text": 0}, r"training: task_batch_sizes\['text_text'\]=0 must be"),
    (smalr, "stages", TWO, "stage 'b': train.image_text has 16 examples, fewer than a batch of 99"),
    (mla, "model.overrides.languages", ["de", "xx"], "model.overrides.languages: 'xx' names no"),
    (mla, "model.overrides.languages", "de", "model.overrides.languages must be a list of texts"),
    (mla, "model.overrides.native_language", "english", "model.overrides.native_language: 'english'"),
    (mla, "model.overrides.acquirerr", "mlp", "acquirerr"),
    (mla, "tokenizer", {"vocab_size": 9}, "tokenizer: the model that training goes on from, .*, has settled it"),
    (mla, "image", {"resize": 9, "crop": 9}, "image: the model that training goes on from, .*, has settled it"),
    (mla, "multilingual_tokenizer", None, "multilingual_tokenizer: a model trained from scratch needs one"),
    (mla, "multilingual_tokenizer.languages", ["sw"], "multilingual_tokenizer.languages: the data has no text in"),
    (mla, "train.text_text.pairs", [["de", "fr"]], "acquired from its translations into 'en'"),
    (mla, "training.trainable", "some", "training.trainable must be one of acquirers, native, all, not 'some'"),
    (mla, "training.text_text_objective", "l1", "training.text_text_objective must be one of mse, nce, not 'l1'"),
    (mural, "model", {"from_pretrained": "/nowhere", "overrides": {"x": 1}}, "tokenizer: the model that"),
    (student, "model", {"preset": "mkd-tiny"}, "model.from_pretrained: a student learns from"),
    (student, "text_model", None, "text_model: a new student needs one"),
    (student, "text_model.preset", "rc3-tiny", "text_model.preset: 'rc3-tiny' has no text_config"),
    (student, "text_model.preset", "mkd", "text_model.preset: there is no preset 'mkd'"),
    (
        student,
        "training.towers",
        {"image": {"train": "none"}},
        "training: towers.image: a student's images are embedded",
    ),
    (
        student,
        "training.towers",
        {"text": {"train": "upper", "layers": 99}},
        "training: towers.text: layers=99 is more than",
    ),
    (student, "text_model.training.max_steps", "x", "text_model.training.max_steps must be a whole number"),
    (smalr, "words.min_frequency", 0, "words: min_frequency must be at least 1, not 0"),
    (smalr, "words.vectors", {"xx": "x.vec"}, "words: vectors: 'xx' names no"),
    (smalr, "words.dictionary", {"files": {"de": "x"}}, "words.dictionary.threshold is missing"),
    (smalr, "training.sentences_per_image", 0, "training: sentences_per_image=0 must be at least 1"),
    (smalr, "tokenizer", {"vocab_size": 9}, "tokenizer: smalr reads nothing there"),
    (mural, "tokenizer.vocab_size", 5, "tokenizer.vocab_size: vocab_size=5 is too small"),
    (rc3, "tokenizer.vocab_size", 200, "tokenizer.vocab_size: vocab_size=200 is too small"),
    (student, "text_model.training.save_strategy", "steps", "text_model.training.save_strategy: .*no checkpoints"),
    (rc3, "report", "emoji", "report: there is no 'emoji'"),
    (rc3, "regions", {"grid": 2, "detector": "x"}, "regions: give either features, a detector or a grid"),
    (rc3, "regions", {"grid": 0}, "regions: grid must be at least 1 cell, not 0"),
    (rc3, "training.data_set_batch_sizes", {"weeak": 8}, "training.data_set_batch_sizes: there is no 'weeak'"),
    (rc3, "task", "visual-entailmentt", "task: there is no 'visual-entailmentt'"),
]

TEXTS = [
    (b"\xff\xfe\x00m", "wrong.yaml: not UTF-8.*: save the file as UTF-8"),
    (b"method: caf\xe9", "wrong.yaml: not UTF-8.*: save the file as UTF-8"),
    ("", "wrong.yaml: the recipe must be a mapping, not None"),
    ("- mural", "wrong.yaml: the recipe must be a mapping"),
    ("just words", "wrong.yaml: the recipe must be a mapping"),
    ("method: [mural", "wrong.yaml: not YAML"),
    ("method: mural\nmethod: etcl", "wrong.yaml: not YAML: 'method' stands there twice"),
    ("method: !!python/object/apply:os.system [true]", "wrong.yaml: not YAML"),
    ("a: &a\n  b: *a", "wrong.yaml: unknown key a"),
    ("x: " + "[" * 5000, "wrong.yaml: not YAML"),
    ("x: " + "9" * 5000, "wrong.yaml: not YAML"),
    ("extends: wrong", "wrong.yaml: extends: 'wrong' comes back to wrong.yaml"),
    ("extends: nothing", "wrong.yaml: extends: there is no recipe"),
    ("extends: [a]", "wrong.yaml: extends must be the name of a recipe"),
    ("extends: null", "wrong.yaml: extends must be the name of a recipe"),
    ("1: 2", "wrong.yaml: unknown key 1"),
    ("method: mural", "wrong.yaml: model is missing"),
]

SETTINGS = [
    ({"training": 1}, "training must be a mapping, not 1"),
    ({"method.x": 1}, "method.x: method is 'mural', which has no keys"),
    ({"train.image_text.languages.0": "en"}, "train.image_text.languages.0: .* has no keys"),
    ({"": 1}, "'' is no key of a recipe"),
    ({"training..seed": 1}, "'training..seed' is no key of a recipe"),
    ({"stages[0].name": "x"}, r"unknown key stages\[0\]"),
    ({"extends": "mural"}, "unknown key extends"),
]


@pytest.mark.parametrize(("key", "value", "message"), MURAL)
def test_a_wrong_value_is_refused_by_name(refuse, folder, key, value, message):
    error = refuse(yaml.safe_dump(set_in(mural(folder), key, value), allow_unicode=True))
    assert _says(error, message)
    if isinstance(error, RecipeError):
        assert "wrong.yaml: " in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(("make", "key", "value", "message"), OTHERS)
def test_so_it_is_for_other_methods(refuse, folder, make, key, value, message):
    assert _says(refuse(yaml.safe_dump(set_in(make(folder), key, value))), message)


@pytest.mark.parametrize(("text", "message"), TEXTS, ids=range(len(TEXTS)))
def test_what_is_no_recipe_is_refused_with_its_file(refuse, text, message):
    assert _says(refuse(text), message)


@pytest.mark.parametrize(("settings", "message"), SETTINGS)
def test_a_wrong_setting_is_refused_by_name(refuse, folder, settings, message):
    assert _says(refuse(yaml.safe_dump(mural(folder)), settings), message)


def _says(error, message):
    with pytest.raises(type(error), match=message):
        raise error
    return True


def test_recipes_that_extend_each_other_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b")
    (tmp_path / "b.yaml").write_text("extends: a")
    with pytest.raises(RecipeError, match=r"b.yaml: extends: 'a' comes back to a.yaml"):
        load_recipe(tmp_path / "a.yaml")


def test_a_license_without_an_identifier_has_its_name_on_the_card(folder, tmp_path):
    file = tmp_path / "shapes.yaml"
    named = {"license": "other", "license_name": "the-shapes-license"}
    file.write_text(yaml.safe_dump(mural(folder) | named))
    run = RecipeRun(load_recipe(file), tmp_path / "run", "")
    run.write_card(run.train(), None)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "license: other" in card and "license_name: the-shapes-license" in card


def test_a_model_that_training_goes_on_from_gets_other_tasks_and_nothing_else(refuse, folder, make_mural, tmp_path):
    align = tmp_path / "align"
    for part in make_mural(tasks=["image_text"]):
        part.save_pretrained(align)
    content = mural(folder) | {"model": {"from_pretrained": str(align)}, "tokenizer": None, "image": None}
    assert "model.overrides.tasks" in str(refuse(yaml.safe_dump(content)))
    for name, value in {"projection_dim": 8, "text_text_temperature": -1}.items():
        content["model"]["overrides"] = {"tasks": ["image_text", "text_text"], name: value}
        assert name in str(refuse(yaml.safe_dump(content)))
