"""Checking whether a recipe can be run to its end: what does not fit its method, its data or the Hub is refused before
the training, and not after hours of it."""

import dataclasses
import logging
from collections.abc import Collection, Sequence

from datasets import IterableDataset
from transformers import TrainingArguments
from transformers.utils import TRANSFORMERS_DYNAMIC_MODULE_NAME

from ..configuration.presets import list_presets, preset_facts
from ..data.corpus.corpus import languages_of
from ..data.corpus.overlap import Overlap
from ..data.emoji.benchmark import published_manifest
from ..model_cards.facts import DataSource as CardSource
from ..model_cards.licenses import check_hub_license, check_weights_license, weights_license
from ..registry import METHODS
from ..trainers.arguments import ContrastiveTrainingArguments
from ..utils.errors import PublishError, RecipeError, did_you_mean
from ..utils.languages import normalize_languages
from ..utils.pretrained import load_config
from .argument_checks import check_names
from .loading import RunParts, workflow_of
from .recipe import EMOJI, WEAK_EMOJI, DataSource, Language, TokenizerSource
from .recipe_file import check_known, validate

logger = logging.getLogger(__name__)

# ---- Before data is read ----


def check_recipe(run: RunParts) -> None:
    """
    Raises:
        RecipeError: for a recipe that does not fit its method, whatever its data.
    """
    _check_sections(run)
    _check_model(run)
    for key, source in _sources(run):
        if run.recipe.task_name is None:
            _check_source(run, key, source)
            continue
        for name in ("translate", "translations", "text_filter"):
            if getattr(source, name) is not None:
                raise RecipeError(f"{key}.{name}: the texts of {run.recipe.task_name} stay as they are; leave it out")
    _check_report(run)
    _check_licenses(run)


def _check_sections(run: RunParts) -> None:
    recipe = run.recipe
    for name in recipe.only_from_scratch:
        if getattr(recipe, name) is not None and (recipe.model.towers or recipe.model.from_pretrained):
            raise RecipeError(f"{name}: the pretrained model brings its own; leave it out, or set {name}=null")
    if (recipe.model.towers or recipe.model.fresh_heads) and not run.builder.takes_towers:
        keys = "model.image, model.text" if recipe.model.towers else "model.fresh_heads"
        others = [name for name in METHODS if workflow_of(name).builder.takes_towers]
        raise RecipeError(f"{keys}: {recipe.method} is not made of two pretrained towers; {', '.join(others)} are")
    if recipe.model.overrides and recipe.model.from_pretrained and not run.builder.overrides_start:
        raise RecipeError("model.overrides: a model that training goes on from keeps its configuration; leave it out")


def _check_model(run: RunParts) -> None:
    for name, kind in (("languages", list[Language]), ("native_language", Language)):
        if name in run.recipe.model.overrides:
            validate(kind, run.recipe.model.overrides[name], f"model.overrides.{name}")
    preset, method = run.recipe.model.preset, run.recipe.method
    if preset is None:
        config = METHODS[method].config
        known = [*(f.name for f in dataclasses.fields(config)), *config.attribute_map]
        for name in run.recipe.model.overrides:
            check_known(name, known, "model.overrides.")
            if name in ("text_config", "vision_config") and run.recipe.model.towers:
                raise RecipeError(f"model.overrides.{name}: the tower brings its own configuration; leave it out")
        return
    if preset not in list_presets():
        own = [name for name in list_presets() if preset_facts(name)["method"] == method]
        raise RecipeError(
            f"model.preset: there is no {preset!r}{did_you_mean(preset, own)}; {method} has {', '.join(own)}"
        )
    if preset_facts(preset)["method"] != method:
        raise RecipeError(f"model.preset: {preset!r} is a preset of {preset_facts(preset)['method']}, not of {method}")


def check_start(run: RunParts) -> None:
    """
    Raises:
        RecipeError: for a model to go on from that is of another type.
        BabelensError: for towers that cannot be had or cannot meet.
        RecipeError: without a license, or with one that the licenses of the models to start from do not allow.
        ModelFolderError: for one that cannot be read, or that needs code of its own which nobody has allowed.
    """
    _check_start_type(run)
    run.builder.check_towers()
    try:
        check_weights_license(run.recipe.license, run.reporting.base_models)
    except PublishError as error:
        raise RecipeError(f"license: {error}") from error


def _check_start_type(run: RunParts) -> None:
    source = run.recipe.model.from_pretrained
    types = run.builder.starts or ((run.recipe.method,) if not run.builder.overrides_start else ())
    if source is None:
        return
    config = load_config(source, **run.builder.code)
    if types and config.model_type not in types:
        raise RecipeError(
            f"model.from_pretrained: {source} holds a model of type {config.model_type!r}, and {run.recipe.method} "
            f"goes on from {' or '.join(types)}"
        )
    if type(config).__module__.startswith(TRANSFORMERS_DYNAMIC_MODULE_NAME):
        raise RecipeError(
            f"model.from_pretrained: the code of {type(config).__name__} comes with {source}, and is not copied into "
            "the model that a recipe saves; `babelens acquire` makes an adapter, which names its base"
        )


def _sources(run: RunParts) -> list[tuple[str, DataSource]]:
    sources = [(f"train.{task}", source) for task, source in run.recipe.train.items()]
    return sources + ([("validation", run.recipe.validation)] if run.recipe.validation else [])


def _check_source(run: RunParts, key: str, source: DataSource) -> None:
    """A source of captions or translations: the options of its loader, and the languages that its task takes."""
    task = key.removeprefix("train.")
    known = source.option_types(translations=task in run.data.translation_tasks)
    for name, value in source.options.items():
        check_known(name, known, f"{key}.options.")
        validate(known[name], value, f"{key}.options.{name}")
    if key == "validation" and source.loader_options().get("streaming"):
        raise RecipeError(f"{key}.options.streaming: evaluation ranks all images at once, and a stream has no end")
    if source.pairs is not None and task not in run.data.paired_tasks:
        raise RecipeError(f"{key}.pairs: {task} takes captions by languages, not by pairs of them")
    paired = task in {*run.data.paired_tasks, *run.data.translation_tasks}
    if source.text_filter is not None and paired:
        raise RecipeError(f"{key}.text_filter: {task} pairs texts with each other; leave it out")
    if source.translations is not None:
        tasks = [name for name in run.recipe.train if name in run.data.translation_tasks]
        if key == "validation":
            raise RecipeError(f"{key}.translations: it is for data that are trained on; leave it out")
        if task in run.data.paired_tasks:
            raise RecipeError(f"{key}.translations: {task} pairs texts with each other by their order; leave it out")
        check_names([source.translations], tasks, f"{key}.translations")
    for pair in source.pairs or ():
        if pair[0] == pair[1] and not run.data.pairs_with_itself:
            raise RecipeError(f"{key}.pairs: {list(pair)} names one language twice, which is no translation")


def _check_report(run: RunParts) -> None:
    recipe = run.recipe
    if recipe.report is not None:
        check_names([recipe.report], run.reporting.reports, "report")
        known = published_manifest()["languages"]
        for tag in recipe.unseen_languages:
            if tag not in known:
                raise RecipeError(f"unseen_languages: the emoji benchmark has no names in {tag!r}")
    elif recipe.unseen_languages:
        raise RecipeError("unseen_languages: they are for the report, which the recipe does not ask for")


def _check_licenses(run: RunParts) -> None:
    recipe = run.recipe
    try:
        if recipe.license is not None:
            check_hub_license(recipe.license, recipe.license_name)
            return
    except PublishError as error:
        raise RecipeError(f"license: {error}") from error
    if recipe.license_name is not None:
        raise RecipeError("license_name: it is for license: other, which the recipe does not state")
    stated = {
        key: source
        for key, source in _sources(run)
        if key != "validation" and source.source not in (EMOJI, WEAK_EMOJI)
    }
    if any(source.license == "unknown" for source in stated.values()):
        return  # the card then says `other`
    for key, source in stated.items():
        try:
            weights_license([CardSource(name=source.source, license=source.license, role="", attribution="")])
        except PublishError as error:
            raise RecipeError(f"{key}.license: {error}") from error


# ---- With the arguments ----


def check_arguments_fit(run: RunParts, arguments: Sequence[TrainingArguments]) -> None:
    """
    Args:
        arguments: of each stage.

    Raises:
        RecipeError: for arguments that do not fit the method's tasks or the recipe's other keys.
    """
    tasks = run.training.tasks
    for stage, args in zip(run.recipe.all_stages, arguments, strict=True):
        where = stage.training_key
        for name in ("task_weights", "task_learning_rates", "task_batch_sizes", "data_set_batch_sizes"):
            check_names(getattr(args, name, None), tasks, f"{where}.{name}")
        if getattr(args, "towers", None) and not hasattr(METHODS[run.recipe.method].model, "towers"):
            raise RecipeError(f"{where}.towers: {run.recipe.method} has no two towers; leave it out")
        check_names((getattr(args, "text_augmentation", None) or {}).get("tasks"), tasks, f"{where}.text_augmentation")
        metric = args.metric_for_best_model
        by_recall = isinstance(args, ContrastiveTrainingArguments) and metric is not None
        if by_recall and not metric.removeprefix("eval_").startswith(("mean_recall", "loss")):
            raise RecipeError(
                f"{where}.metric_for_best_model={metric}: there is no such metric; there are loss, mean_recall and, "
                "for a language, such as mean_recall_de"
            )
        if args.eval_strategy != "no" and run.recipe.validation is None:
            raise RecipeError(
                f"{where}.eval_strategy={args.eval_strategy.value}: there are no data for it in validation"
            )


# ---- With the data ----


def check_data(run: RunParts, arguments: Sequence[TrainingArguments]) -> None:
    """Reads the data, and checks whether it has the languages and as many examples as the recipe needs.

    Args:
        arguments: of each stage.

    Raises:
        RecipeError: for a language that the data lacks, and a stream where there can be none.
        CorpusError and its kin: for data that cannot be used.
    """
    if run.recipe.task_name is not None:
        return  # tasks check their data themselves, which have forms of their own
    present = {task: languages_of(corpus) for task, corpus in run.data.corpora.items() if task not in run.data.streams}
    for task, languages in present.items():
        source = run.recipe.train[task]
        _check_present(source.languages, languages, f"train.{task}.languages")
        pairs = source.pairs or ()
        _check_present([tag for pair in pairs for tag in pair], languages, f"train.{task}.pairs")
        for stage in run.recipe.all_stages:
            if task in stage.tasks and task not in run.data.translation_tasks:
                _check_present(stage.languages, languages, f"stages.{stage.name}.languages")
    for key, vocabulary in run.recipe:
        if isinstance(vocabulary, TokenizerSource) and vocabulary.languages and not run.data.streams:
            _check_present(vocabulary.languages, run.data.captions, f"{key}.languages")
    for stage, args in zip(run.recipe.all_stages, arguments, strict=True):
        streamed = [task for task in stage.tasks if isinstance(run.data.corpora[task], IterableDataset)]
        if streamed and args.max_steps < 1:
            raise RecipeError(
                f"training.max_steps: train.{streamed[0]} is a stream, whose length is unknown: give the "
                "number of steps"
            )
    for stage, args in zip(run.recipe.all_stages, arguments, strict=True):
        for task in stage.tasks:
            count = None if task in run.data.streams else run.data.count_examples(task, stage)
            own = getattr(args, "task_batch_sizes", None) or {}
            size = own.get(task, args.per_device_train_batch_size)
            if count is not None and count < size:
                where = f"stages.{stage.name}: " if run.recipe.stages else ""
                name = f"task_batch_sizes.{task}" if task in own else "per_device_train_batch_size"
                raise RecipeError(
                    f"{where}train.{task} has {count} examples, fewer than a batch of {size} ({name}): "
                    f"training.{name}={count} takes all"
                )
    _check_evaluated_languages(run, arguments)
    _check_reported_languages(run)


def warn_of_overlap(overlaps: Sequence[Overlap]) -> None:
    """Logs what of the validation data is in the training data, as a warning where results may be too good."""
    for overlap in overlaps:
        logger.log(logging.WARNING if overlap.is_notable else logging.INFO, "validation: %s", overlap)


def _check_evaluated_languages(run: RunParts, arguments: Sequence[TrainingArguments]) -> None:
    for stage, args in zip(run.recipe.all_stages, arguments, strict=True):
        wanted = getattr(args, "eval_languages", None)
        if wanted and run.recipe.validation is not None:
            where = stage.training_key
            languages = languages_of(run.data.validation)
            _check_present(normalize_languages(wanted), languages, f"{where}.eval_languages")


def _check_present(wanted: Sequence[str] | None, present: Collection[str], key: str) -> None:
    for tag in wanted or ():
        if tag not in present:
            raise RecipeError(f"{key}: the data has no text in {tag!r}, only in {', '.join(present)}")


def _check_reported_languages(run: RunParts) -> None:
    """The emoji benchmark asks in the languages that were trained on and in those that were not."""
    if run.recipe.report is None:
        return
    trained = normalize_languages([*run.data.image_languages, *run.data.pair_languages])
    for tag in run.recipe.unseen_languages:
        if tag in trained:
            raise RecipeError(f"unseen_languages: {tag!r} is trained on")
    known = published_manifest()["languages"]
    for tag in trained:
        if tag not in known:
            raise RecipeError(f"report: the emoji benchmark has no names in {tag!r}, which is trained on")
