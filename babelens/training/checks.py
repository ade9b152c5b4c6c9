"""Checks before a `run.RecipeRun`: keys that would be ignored, or that would fail after hours of training."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from transformers import TrainingArguments
from transformers.utils import TRANSFORMERS_DYNAMIC_MODULE_NAME

from ..data.corpus.corpus import Overlap, languages_of
from ..data.emoji.benchmark import published_manifest
from ..model_cards.base_models import UNKNOWN, check_hub_license, check_weights_license, weights_license
from ..model_cards.facts import DataSource as CardSource
from ..presets import list_presets, preset_facts
from ..registry import METHODS, dual_encoder_of
from ..trainers.arguments import ContrastiveTrainingArguments
from ..utils.errors import PublishError, RecipeError
from ..utils.languages import normalize_languages
from ..utils.pretrained import load_config
from .schema import (
    EMOJI,
    WEAK_EMOJI,
    DataSource,
    Language,
    Recipe,
    TokenizerSource,
    builder_of,
    check_names,
    validate,
)

logger = logging.getLogger(__name__)

# ---- Before data is read ----


def check_recipe(run: Any) -> None:
    """Checks that a recipe fits its method, before its data is read."""
    run.builder.check_tasks()
    _check_model(run)
    sources = {f"train.{task}": source for task, source in run.recipe.train.items()}
    if run.recipe.validation:
        sources["validation"] = run.recipe.validation
    for key, source in sources.items():
        if run.recipe.task_name is None:
            _check_source(run, key, source)
        elif source.translations is not None or source.text_filter is not None:
            raise RecipeError(f"{key}: {run.recipe.task_name} has neither translations nor text_filter")
    if run.recipe.report is not None:
        reports = () if dual_encoder_of(run.recipe.method) is None else (EMOJI,)
        check_names([run.recipe.report], reports, "report")
        check_names(run.recipe.unseen_languages, published_manifest()["languages"], "unseen_languages")
    elif run.recipe.unseen_languages:
        raise RecipeError("unseen_languages requires report: emoji")
    _check_licenses(run.recipe)


def _check_model(run: Any) -> None:
    recipe, model = run.recipe, run.recipe.model
    for name in recipe.only_from_scratch:
        if getattr(recipe, name) is not None and (model.towers or model.from_pretrained):
            raise RecipeError(f"{name}: the pretrained model brings its own; leave it out, or set {name}=null")
    if (model.towers or model.fresh_heads) and not run.builder.takes_towers:
        keys = "model.image, model.text" if model.towers else "model.fresh_heads"
        others = [name for name in METHODS if builder_of(name).takes_towers]
        raise RecipeError(f"{keys}: {recipe.method} is not made of two pretrained towers; {', '.join(others)} are")
    if model.overrides and model.from_pretrained and not run.builder.overrides_start:
        raise RecipeError("model.overrides: a model that training continues from keeps its configuration")
    for name, kind in (("languages", list[Language]), ("native_language", Language)):
        if name in model.overrides:
            validate(kind, model.overrides[name], f"model.overrides.{name}")
    if model.preset is None:
        config = METHODS[recipe.method].config
        known = {*config.__dataclass_fields__, *config.attribute_map}
        check_names(model.overrides, known, "model.overrides")
        return
    own = [name for name in list_presets() if preset_facts(name)["method"] == recipe.method]
    check_names([model.preset], own, "model.preset")


def _check_source(run: Any, key: str, source: DataSource) -> None:
    task = key.removeprefix("train.")
    is_paired, is_translation = task in run.data.paired_tasks, task in run.data.translation_tasks
    options = source.loader_options(f"{key}.options", translations=is_translation)
    if key == "validation" and options.get("streaming"):
        raise RecipeError(f"{key}.options.streaming: evaluation ranks all images, and a stream has no end")
    if source.pairs is not None and not is_paired:
        raise RecipeError(f"{key}.pairs: {task} selects captions by languages, not by pairs")
    if source.text_filter is not None and (is_paired or is_translation):
        raise RecipeError(f"{key}.text_filter: {task} pairs texts with each other; leave it out")
    if source.translations is not None:
        if key == "validation" or is_paired:
            raise RecipeError(f"{key}.translations: only captions of images that are trained on are translated")
        tasks = [name for name in run.recipe.train if name in run.data.translation_tasks]
        check_names([source.translations], tasks, f"{key}.translations")
    for first, second in source.pairs or ():
        if first == second and not run.data.pairs_with_itself:
            raise RecipeError(f"{key}.pairs: [{first}, {second}] names one language twice")


def _check_licenses(recipe: Recipe) -> None:
    if recipe.license is None and recipe.license_name is not None:
        raise RecipeError("license_name requires license: other")
    stated = [source for source in recipe.train.values() if source.source not in (EMOJI, WEAK_EMOJI)]
    try:
        if recipe.license is not None:
            check_hub_license(recipe.license, recipe.license_name)
        elif stated and all(source.license != UNKNOWN for source in stated):  # otherwise the card says `other`
            weights_license([CardSource(name=e.source, license=e.license, role="", attribution="") for e in stated])
    except PublishError as error:
        raise RecipeError(f"license: {error}") from error


def check_start(run: Any) -> None:
    """Checks the model or the towers that training starts from: their kind, their code and their licenses."""
    source = run.recipe.model.from_pretrained
    if source is not None:
        types = run.builder.starts or ((run.recipe.method,) if not run.builder.overrides_start else ())
        config = load_config(source, **run.builder.code)
        if types and config.model_type not in types:
            raise RecipeError(
                f"model.from_pretrained: {source} holds a model of type {config.model_type!r}; "
                f"{run.recipe.method} continues from {' or '.join(types)}"
            )
        if type(config).__module__.startswith(TRANSFORMERS_DYNAMIC_MODULE_NAME):
            raise RecipeError(f"model.from_pretrained: the saved model would lack the code that {source} brings")
    run.builder.check_start()
    try:
        check_weights_license(run.recipe.license, run.reporting.base_models)
    except PublishError as error:
        raise RecipeError(f"license: {error}") from error


# ---- With the arguments ----


def check_arguments_fit(run: Any, arguments: Sequence[TrainingArguments]) -> None:
    """Checks the arguments of each stage against the method's tasks and the recipe's other keys."""
    tasks = run.builder.tasks
    for stage, args in zip(run.recipe.all_stages, arguments, strict=True):
        where = stage.training_key
        for name in ("task_weights", "task_learning_rates", "task_batch_sizes", "data_set_batch_sizes"):
            check_names(getattr(args, name, None), tasks, f"{where}.{name}")
        if getattr(args, "towers", None) and not hasattr(METHODS[run.recipe.method].model, "towers"):
            raise RecipeError(f"{where}.towers: {run.recipe.method} does not have two towers; leave it out")
        check_names((getattr(args, "text_augmentation", None) or {}).get("tasks"), tasks, f"{where}.text_augmentation")
        metric = args.metric_for_best_model
        by_recall = isinstance(args, ContrastiveTrainingArguments) and metric is not None
        if by_recall and not metric.removeprefix("eval_").startswith(("mean_recall", "loss")):
            raise RecipeError(
                f"{where}.metric_for_best_model={metric}: choose loss, mean_recall or, for a language, mean_recall_de"
            )
        if args.eval_strategy != "no" and run.recipe.validation is None:
            raise RecipeError(f"{where}.eval_strategy={args.eval_strategy.value}: this requires validation data")


# ---- With the data ----


def check_data(run: Any, arguments: Sequence[TrainingArguments]) -> None:
    """Reads the data, and checks that it has the languages and the number of examples that the recipe needs."""
    if run.recipe.task_name is not None:
        return  # tasks have other data formats, and check them themselves
    streams = run.data.streams
    for task, corpus in run.data.corpora.items():
        if task in streams:
            continue
        source, languages = run.recipe.train[task], languages_of(corpus)
        _check_present(source.languages, languages, f"train.{task}.languages")
        _check_present([tag for pair in source.pairs or () for tag in pair], languages, f"train.{task}.pairs")
        for stage in run.recipe.all_stages:
            if task in stage.tasks and task not in run.data.translation_tasks:
                _check_present(stage.languages, languages, f"stages.{stage.name}.languages")
    for key, vocabulary in run.recipe:
        if isinstance(vocabulary, TokenizerSource) and vocabulary.languages and not streams:
            _check_present(vocabulary.languages, run.data.captions, f"{key}.languages")
    for stage, args in zip(run.recipe.all_stages, arguments, strict=True):
        for task in stage.tasks:
            if task in streams:
                if args.max_steps < 1:
                    raise RecipeError(f"{stage.training_key}.max_steps: train.{task} is a stream of unknown length")
                continue
            own = getattr(args, "task_batch_sizes", None) or {}
            size, count = own.get(task, args.per_device_train_batch_size), run.data.count_examples(task, stage)
            if count is not None and count < size:
                name = f"task_batch_sizes.{task}" if task in own else "per_device_train_batch_size"
                raise RecipeError(
                    f"{stage.training_key}.{name}: train.{task} has {count} examples, fewer than a batch of {size}"
                )
        wanted = getattr(args, "eval_languages", None)
        if wanted and run.recipe.validation is not None:
            languages = languages_of(run.data.validation)
            _check_present(normalize_languages(wanted), languages, f"{stage.training_key}.eval_languages")
    if run.recipe.report is not None:
        trained = normalize_languages([*run.data.image_languages, *run.data.pair_languages])
        if seen := [tag for tag in run.recipe.unseen_languages if tag in trained]:
            raise RecipeError(f"unseen_languages: {', '.join(seen)} is trained on")
        check_names(trained, published_manifest()["languages"], "report, the languages of the emoji benchmark")


def _check_present(wanted: Sequence[str] | None, present: Collection[str], key: str) -> None:
    for tag in wanted or ():
        if tag not in present:
            raise RecipeError(f"{key}: the data has no text in {tag!r}, only in {', '.join(present)}")


def log_overlap(overlaps: Sequence[Overlap]) -> None:
    """Logs which validation data is in the training data, as a warning if it may inflate the results."""
    for overlap in overlaps:
        logger.log(logging.WARNING if overlap.is_notable else logging.INFO, "validation: %s", overlap)
