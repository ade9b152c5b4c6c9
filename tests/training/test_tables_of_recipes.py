"""What the rows of a table differ in: the one thing that the table compares."""

import pytest

from babelens.configuration.presets import load_preset
from babelens.training.base import flattened
from babelens.training.loading import load_recipe
from babelens.training.recipe_file import RECIPES

# Recipe -> the row that it is compared with, and the keys in which both may differ.
ROWS = {
    "rc3/no-kl": ("rc3/base", {"model.overrides.relevance_weight"}),
    "rc3/no-rxvtcl": ("rc3/base", {"model.overrides.rxvtcl_weight", "train.weak"}),
    "rc3/no-contrast": (
        "rc3/base",
        {
            *(f"model.overrides.{name}_weight" for name in ("rxvtcl", "xtcl")),
            *("train.weak", "train.parallel", "training.parallel_captions"),
        },
    ),
    "mla/linear": ("mla/cc300k", {"model.overrides.acquirer"}),
    "mla/kept": ("mla/cc300k", {"stages", "train.image_text", "train.triplet"}),
    "mla/kept-nce": ("mla/kept", {"stages"}),
    "mla/transfer": ("mla/cc300k", {"stages"}),
    "mla/transfer-nce": ("mla/transfer", {"stages"}),
    "mla/exposure": ("mla/cc300k", {"stages"}),
    "mla/exposure-mse": ("mla/exposure", {"stages"}),
    "mla/transfer-exposure-mse": ("mla/cc300k", {"stages"}),
    "smalr/hem": ("smalr/smalr", {"model.overrides.mask_weight"}),
    "smalr/la": ("smalr/hem", {"model.overrides.specific_words"}),
    "smalr/mule": (
        "smalr/hem",
        {
            *(f"model.overrides.{name}" for name in ("word_size", "specific_words", "latent_tokens", "vector_weight")),
            *("stages", "training.learning_rate"),  # its warm-up, and the rate of its code
        },
    ),
    "smalr/embn": (
        "smalr/mule",
        {
            *("model.overrides.adversarial_weight", "stages", "train.text_text", "validation.translate"),
            *("train.image_text.languages", "training.eval_languages"),  # of one language
        },
    ),
    "smalr/par-embn": (
        "smalr/mule",
        {
            *(
                f"model.overrides.{name}"
                for name in ("language_branches", "adversarial_weight", "neighborhood_weight")
            ),
            *("stages", "train.text_text"),
        },
    ),
    "smalr/l-liwe": ("smalr/s-liwe", {"model.preset"}),
    # The paper's central comparison: the text-text task.
    "mural/align-base": (
        "mural/base",
        {"model.preset", "model.overrides.label_smoothing", "train.text_text", "training.task_learning_rates"},
    ),
    "mural/align-en": ("mural/align-base", {"train.image_text.languages", "train.image_text.translate"}),
    "mural/align-translate-train": (
        "mural/align-base",
        {"train.image_text.languages", "train.image_text.translate"},
    ),
    "mural/from-align": (
        "mural/base",
        {"model.preset", "model.from_pretrained", "model.overrides.tasks", "tokenizer"},
    ),
    "mural/finetune-co-captions": (
        "mural/finetune-multi30k-coco",
        {"train.text_text", "training.task_learning_rates"},
    ),
    "mural/large": ("mural/base", {"model.preset", "training.per_device_train_batch_size"}),
    "mural/align-l2": (
        "mural/align-en",
        {"model.preset", "model.overrides.label_smoothing", "training.per_device_train_batch_size"},
    ),
    "etcl/mural": (
        "etcl/base",
        {
            *("stages", "train.triplet", "training.save_steps", "training.save_total_limit"),
            *(f"training.{name}" for name in ("learning_rate", "max_steps", "per_device_train_batch_size")),
            "training.warmup_steps",
        },
    ),
    "etcl/6lang": ("etcl/triplets", {"train.triplet", "train.image_text"}),
    "etcl/plus-one": ("etcl/6lang", {"train.image_text.languages"}),
    "etcl/finetune-mscoco": (
        "etcl/finetune-multi30k",
        {*(f"train.image_text.{name}" for name in ("source", "options", "languages")), "training.max_steps"},
    ),
    "mla/cma": (
        "mla/mkd",
        {
            *(f"model.overrides.{name}" for name in ("strategy", "acquirer_size")),
            "stages",
            "train.image_text.languages",
        },
    ),
    "smalr/mscoco": (
        "smalr/smalr",
        {
            *(f"train.{task}.{name}" for task in ("text_text", "image_text") for name in ("source", "translate")),
            *("validation.source", "validation.translate.to", "words.max_text_length"),
        },
    ),
    "photos/mural-published": (
        "photos/mural",
        {
            *(f"model.overrides.{name}" for name in ("shared_text_head", "text_hidden_size", "text_layer_norm")),
            *("model.overrides.text_text_margin", "model.overrides.text_text_temperature"),
            *("train.image_text.translations", "training.task_weights.text_text"),
        },
    ),
    **{f"emoji/etcl/{name}": ("emoji/etcl/mural", {"stages", "train.triplet"}) for name in ("etcl", "6lang")},
    **{f"emoji/etcl/plus-{tag}": ("emoji/etcl/6lang", {"stages"}) for tag in ("cs", "de", "ja")},
}
# The tables on the emoji benchmark compare the same.
SMALL = {"rc3/base": "emoji/rc3/pretrain", "mla/cc300k": "emoji/mla/mla"}
NAMES = {str(file.relative_to(RECIPES).with_suffix("")) for file in RECIPES.rglob("*.yaml")}
ROWS |= {
    f"emoji/{name}": (SMALL.get(other, f"emoji/{other}"), keys)
    for name, (other, keys) in ROWS.items()
    if f"emoji/{name}" in NAMES and not name.startswith("etcl/")
}


def settings(name):
    found = flattened(load_recipe(name).model_dump(mode="json"))
    return {key: value for key, value in found.items() if value not in ({}, [])}


@pytest.mark.parametrize("name", ROWS)
def test_rows_differ_in_what_their_table_compares(name):
    other, allowed = ROWS[name]
    here, there = settings(name), settings(other)
    different = {key for key in here.keys() | there.keys() if here.get(key) != there.get(key)}
    beyond = {key for key in different if not any(key == each or key.startswith(f"{each}.") for each in allowed)}
    assert different and not beyond


def test_mural_and_align_share_their_loss_and_vocabulary():
    """What a table compares is the task alone: label smoothing, temperature, towers and tokenizer are the same."""
    configs = [
        load_preset(recipe.model.preset, **recipe.model.overrides).to_dict()
        for recipe in map(load_recipe, ("mural/base", "mural/align-base"))
    ]
    different = {key for key in configs[0] if configs[0][key] != configs[1].get(key)}
    assert different == {"tasks"}
    tokenizers = {
        load_recipe(f"mural/{name}").tokenizer for name in ("base", "large", "align-base", "align-en", "align-l2")
    }
    assert len(tokenizers) == 1


def test_the_second_stage_of_etcl_is_the_same_alone():
    whole, alone = load_recipe("etcl/base"), load_recipe("etcl/triplets")
    assert whole.train["triplet"] == alone.train["triplet"]
    assert {**whole.training, **whole.stages[1].training} == {**alone.training}
