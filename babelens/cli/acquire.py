"""`babelens acquire`: a model learns more languages."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .options import CAPTIONED_IMAGES, AsJson, Settings, TrustRemoteCode, settings_of
from .starting import begin_work

_DATA = "Data"
_ENCODER = "Text encoder"
_TRAINING = "Training"


def acquire(
    base: Annotated[
        str | None,
        typer.Option(
            help="The model that learns the language: a dual encoder of transformers (CLIP, SigLIP, ALIGN, …) or of "
            "babelens (MURAL, ETCL, MLA), a model of sentence-transformers, or a table of vectors (`.parquet`); a "
            "file, a folder, or a name on the Hub.",
            show_default=False,
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="The language to learn, as a BCP-47 tag such as `uk`; several at once: `uk,pl,cs`; or `all` of the "
            "translations. An adapter learns one.",
            show_default=False,
        ),
    ] = None,
    translations: Annotated[
        str | None,
        typer.Option(
            help="Sentences in that language and in the native language of BASE: a `.tsv` file with a header such as "
            '`en⇥uk`, a `.jsonl` file of lines such as `{"en": "…", "uk": "…"}`, OPUS\'s `en-uk.txt.zip`, or a '
            "data set on the Hub.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(
            help="Without translations: sentences in the native language alone, a `.txt` file with one a line, or "
            "captioned images. All languages that --text-encoder reads come along.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    dictionary: Annotated[
        str | None,
        typer.Option(
            help="Words in that language and in the native language, in the same forms as --translations. With "
            "--texts, in any languages. Where a word has several translations, the one that the native texts say most "
            "often is taken.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    captions: Annotated[
        str | None,
        typer.Option(
            help=f"Images with captions in that language, for a second stage of training: {CAPTIONED_IMAGES}.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The folder for the model, or for the adapter; required without --advise.",
            show_default=False,
        ),
    ] = None,
    way: Annotated[
        Literal["ridge", "adapter", "student"] | None,
        typer.Option(
            help="How the language is learned: solved in half a minute, by `ridge` regression from the characters of "
            "texts and, with --text-encoder, from its features; or trained, as an `adapter` in the text tower of "
            "BASE, or as a `student`, a multilingual text encoder beside it.",
            show_default="ridge",
        ),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            help="A file with these choices, such as the `recipe.yaml` that stands in every OUTPUT; options take "
            "precedence.",
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
    text_encoder: Annotated[
        str | None,
        typer.Option(
            help="A multilingual text encoder, such as `intfloat/multilingual-e5-small`; a folder, or a name on the "
            "Hub. With `--way ridge`, it is optional and stays frozen; a student needs it. With `--way adapter`, the "
            "closed form that the adapter is compared with reads by it.",
            rich_help_panel=_ENCODER,
            show_default=False,
        ),
    ] = None,
    text_prompt: Annotated[
        str | None,
        typer.Option(
            help="What stands before every text that the text encoder reads, such as `query: ` of E5.",
            rich_help_panel=_ENCODER,
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Minutes of training on translations, without --steps.",
            rich_help_panel=_TRAINING,
            show_default="5",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Steps of training on translations.",
            rich_help_panel=_TRAINING,
            show_default="20 passes over the translations, at least 500, at most the paper's 117,150; fewer where "
            "--minutes end",
        ),
    ] = None,
    advise: Annotated[
        bool,
        typer.Option(
            "--advise",
            help="Write nothing, and say how far the sentences lead, by the closed form: with 100, 300, 1,000 … of "
            "them, and with more than there are. With `--way adapter` or `student`, also what the training costs.",
        ),
    ] = False,
    assemble: Annotated[
        bool,
        typer.Option(
            "--assemble",
            help="With an adapter, write the whole model as well, to OUTPUT/model, for `AutoModel` and `babelens "
            "search`.",
        ),
    ] = False,
    license: Annotated[
        str | None,
        typer.Option(
            help="License of the result, by its name on the Hub: `cc-by-4.0`.",
            rich_help_panel=_DATA,
            show_default="other",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue a run that was interrupted, on the same data.", rich_help_panel=_TRAINING
        ),
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Teach a model more languages from translations; its results in all other languages stay bitwise the same.

    `babelens acquire --base openai/clip-vit-base-patch32 --language uk --translations pairs.tsv --output clip-uk`

    A thousand sentences and half a minute are enough. OUTPUT is a whole model: `AutoModel.from_pretrained` and
    `babelens search` load it, and it is the --base for the next language. With `--text-encoder
    intfloat/multilingual-e5-small`, languages that the encoder reads are found better, and take a minute.

    Without translations, `--texts captions.txt --text-encoder …` fits the map from the encoder to BASE on sentences in
    the native language alone. Languages that the encoder reads come along; they are found better with translations,
    or with `--dictionary words.tsv`.

    `--way adapter` and `--way student` train by gradients, which takes longer and wants more sentences. PEFT's
    `PeftModel.from_pretrained` loads the folder of an adapter; with --assemble, the folder `model` in it is a whole
    model. A student is a text encoder that learns to put texts where BASE puts their translations. Both are compared
    with the closed form, and the better one is saved.

    Every other choice is a key of the recipe, for --set. Of the closed form: `ngram_rows`, `glossaries` (false for
    none); of the text encoder: `text_pooling`; of a student: `train_layers`, `freeze_encoder`, `native_texts`; of an
    adapter: `vocabulary` or `new_vocabulary`, `acquirer`, `acquirer_size`, `train_embedding`, `text_tower`; of a
    training: `keep` (`better` or `trained`), `exposure_steps`, `training.learning_rate`,
    `training.per_device_train_batch_size`, `training.precision`, `training.seed`; of all: `native_language`, `names`
    (false: without CLDR's names of emoji).
    """
    given = {
        "way": way,
        "base": base,
        "language": language,
        "translations": translations,
        "texts": texts,
        "dictionary": dictionary,
        "captions": captions,
        "text_encoder": text_encoder,
        "text_prompt": text_prompt,
        "minutes": minutes,
        "steps": steps,
        "license": license,
    }
    settled = settings_of(settings)
    begin_work()
    from ..workflows.acquisition_recipe import acquisition_recipe
    from .acquire_work import acquire_language, acquire_solved, print_advice

    choices = acquisition_recipe(recipe, {name: value for name, value in given.items() if value is not None}, settled)
    chosen = choices.get("way", "ridge")
    if choices.get("texts") is not None:
        if chosen != "ridge" or advise or "translations" in choices or "language" in choices:
            raise typer.BadParameter(
                "the languages are those of the text encoder, by --way ridge: leave out --language, --translations "
                "and --advise",
                param_hint="--texts",
            )
    elif "language" not in choices or "translations" not in choices:
        raise typer.BadParameter(
            "name the language, and the file of its translations; or --texts in the native language",
            param_hint="--language, --translations",
        )
    if "base" not in choices:
        raise typer.BadParameter("name the model that learns the language", param_hint="--base")
    if advise:
        print_advice(choices, trust_remote_code=trust_remote_code, as_json=as_json)
        return
    if output is None:
        raise typer.BadParameter("name the folder for the result", param_hint="--output")
    if assemble and chosen != "adapter":
        raise typer.BadParameter(f"the OUTPUT of --way {chosen} is a whole model already", param_hint="--assemble")
    where: dict[str, Any] = {"output": output, "trust_remote_code": trust_remote_code, "as_json": as_json}
    if chosen == "ridge":
        if resume:
            raise typer.BadParameter("--way ridge begins anew: it takes a minute", param_hint="--resume")
        acquire_solved(choices, **where)
        return
    acquire_language(choices, assemble=assemble, resume=resume, **where)
