"""`babelens acquire`: a model learns one more language."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..configuration.defaults import M_BERT, Precision
from .options import CAPTIONED_IMAGES, AsJson, TrustRemoteCode
from .starting import begin_work

_DATA = "Data"
_ENCODER = "Text encoder"
_STUDENT = "For a student"
_FIRST_LANGUAGE = "For the first language; later languages share these choices"
_TRAINING = "Training"


def acquire(
    base: Annotated[
        str,
        typer.Option(
            help="The model that learns the language: a dual encoder of transformers (CLIP, SigLIP, ALIGN, …) or of "
            "babelens (MURAL, ETCL, MLA); a folder, or a name on the Hub."
        ),
    ],
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
    output: Annotated[
        Path | None,
        typer.Option(
            help="The folder for the model, or for the adapter; required without --advise.",
            show_default=False,
        ),
    ] = None,
    way: Annotated[
        Literal["ridge", "adapter", "student"],
        typer.Option(
            help="How the language is learned: solved in half a minute, by `ridge` regression from the characters of "
            "texts and, with --text-encoder, from its features; or trained, as an `adapter` in the text tower of "
            "BASE, or as a `student`, a multilingual text encoder beside it."
        ),
    ] = "ridge",
    advise: Annotated[
        bool,
        typer.Option(
            "--advise",
            help="Write nothing, and say how far the sentences lead, by the closed form: with 100, 300, 1,000 … of "
            "them, and with more than there are. With `--way adapter` or `student`, also what the training costs.",
        ),
    ] = False,
    captions: Annotated[
        str | None,
        typer.Option(
            help=f"Images with captions in that language, for a second stage of training: {CAPTIONED_IMAGES}.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    assemble: Annotated[
        bool,
        typer.Option(
            "--assemble", help="Write the whole model as well, to OUTPUT/model, for `AutoModel` and `babelens search`."
        ),
    ] = False,
    native_language: Annotated[
        str | None,
        typer.Option(help="The language that BASE reads.", rich_help_panel=_FIRST_LANGUAGE, show_default="en"),
    ] = None,
    vocabulary: Annotated[
        str | None,
        typer.Option(
            help="The model or tokenizer whose word pieces all acquired languages share.",
            rich_help_panel=_FIRST_LANGUAGE,
            show_default=M_BERT,
        ),
    ] = None,
    new_vocabulary: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Train a vocabulary with this number of word pieces on the translations instead.",
            rich_help_panel=_FIRST_LANGUAGE,
        ),
    ] = None,
    acquirer: Annotated[
        Literal["mlp", "linear"] | None,
        typer.Option(
            help="The layer that is added after each block of the text tower: `mlp`, a network with one hidden "
            "layer, or `linear`, a single matrix.",
            rich_help_panel=_FIRST_LANGUAGE,
            show_default="mlp",
        ),
    ] = None,
    acquirer_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Width of the hidden layer of `mlp`.", rich_help_panel=_FIRST_LANGUAGE, show_default="256"
        ),
    ] = None,
    train_embedding: Annotated[
        bool | None,
        typer.Option(
            "--train-embedding/--freeze-embedding",
            help="Train the embedding table that all acquired languages share, or keep it as it is. A model that "
            "has acquired languages always keeps it, because training it would change those languages.",
            rich_help_panel=_FIRST_LANGUAGE,
            show_default="train",
        ),
    ] = None,
    text_tower: Annotated[
        str | None,
        typer.Option(
            help="Where BASE has its text tower, if `acquire` asks for it: `path=text_model,embeddings=embeddings,"
            "blocks=encoder.layers,pooling=mean`. The pooling is `end`, `first`, `last` or `mean`.",
            metavar="KEY=NAME,…",
            rich_help_panel=_FIRST_LANGUAGE,
        ),
    ] = None,
    text_encoder: Annotated[
        str | None,
        typer.Option(
            help="A multilingual text encoder, such as `intfloat/multilingual-e5-small`; a folder, or a name on the "
            "Hub. With `--way ridge`, it is optional and stays frozen; a student needs it. With `--way adapter`, the "
            "closed form that the adapter is compared with reads by it.",
            rich_help_panel=_ENCODER,
        ),
    ] = None,
    text_pooling: Annotated[
        Literal["cls", "mean", "eos", "pooler"] | None,
        typer.Option(
            help="The vector that stands for a text: the state of its first token (`cls`), the mean over its tokens "
            "(`mean`), the state of its last token (`eos`), or what the encoder's own pooling layer returns "
            "(`pooler`).",
            rich_help_panel=_ENCODER,
            show_default="as the folder of the encoder states, else mean, or cls for a student",
        ),
    ] = None,
    text_prompt: Annotated[
        str | None,
        typer.Option(
            help="What stands before every text that the text encoder reads, such as `query: ` of E5.",
            rich_help_panel=_ENCODER,
        ),
    ] = None,
    freeze_encoder: Annotated[
        bool,
        typer.Option(
            "--freeze-encoder",
            help="Keep the text encoder as it is, and train a projection alone.",
            rich_help_panel=_STUDENT,
        ),
    ] = False,
    train_layers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Train the N upper layers of the text encoder and a projection. What the layers below give is "
            "computed once, so that a step costs what N layers cost.",
            rich_help_panel=_STUDENT,
            show_default="all layers",
        ),
    ] = None,
    native_texts: Annotated[
        Literal["native", "student"] | None,
        typer.Option(
            help="What reads texts in the native language: BASE, so that their embeddings stay bitwise the same "
            "(`native`), or the student too (`student`).",
            rich_help_panel=_STUDENT,
            show_default="native",
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
    minutes: Annotated[
        float,
        typer.Option(min=0.1, help="Minutes of training on translations, without --steps.", rich_help_panel=_TRAINING),
    ] = 5.0,
    keep: Annotated[
        Literal["better", "trained"],
        typer.Option(
            help="What is saved after training: the `better` of what was trained and the closed form, by held-out "
            "translations; or what was `trained`, without a comparison.",
            rich_help_panel=_TRAINING,
        ),
    ] = "better",
    exposure_steps: Annotated[
        int | None,
        typer.Option(
            min=1, help="Steps of training on captions.", rich_help_panel=_TRAINING, show_default="a tenth of --steps"
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts at a time.", rich_help_panel=_TRAINING)] = 128,
    learning_rate: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Learning rate on translations. Training on captions takes 3 % of it.",
            rich_help_panel=_TRAINING,
        ),
    ] = 1e-4,
    precision: Annotated[
        Precision,
        typer.Option(
            help="The number format of the computation. `auto` is `bfloat16` where the hardware multiplies it, and "
            "`float32` elsewhere.",
            rich_help_panel=_TRAINING,
        ),
    ] = "auto",
    bf16: Annotated[
        bool, typer.Option("--bf16", help="The same as `--precision bfloat16`.", rich_help_panel=_TRAINING)
    ] = False,
    names: Annotated[
        bool,
        typer.Option(
            "--names/--no-names",
            help="With `--way ridge`, learn words from Unicode CLDR's names of emoji too, in the language or in "
            "a near relative. They are fetched once, from the npm registry; license: Unicode-3.0.",
            rich_help_panel=_DATA,
        ),
    ] = True,
    license: Annotated[
        str,
        typer.Option(help="License of the result, by its name on the Hub: `cc-by-4.0`.", rich_help_panel=_DATA),
    ] = "other",
    seed: Annotated[
        int,
        typer.Option(min=0, max=2**32 - 1, help="Seed of all random numbers.", rich_help_panel=_TRAINING),
    ] = 42,
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
    the native language alone. Languages that the encoder reads come along; by translations, they are found better.

    `--way adapter` and `--way student` train by gradients, which takes longer and wants more sentences. PEFT's
    `PeftModel.from_pretrained` loads the folder of an adapter; with --assemble, the folder `model` in it is a whole
    model. A student is a text encoder that learns to put texts where BASE puts their translations. Both are compared
    with the closed form, and the better one is saved (--keep).
    """
    begin_work()
    from .acquire_work import acquire_language, acquire_solved, print_advice

    choices: dict[str, Any] = {
        "base": base,
        "language": language or "",
        "translations": translations or "",
        "output": output or Path(),
        "captions": captions,
        "native_language": native_language,
        "vocabulary": vocabulary,
        "new_vocabulary": new_vocabulary,
        "acquirer": acquirer,
        "acquirer_size": acquirer_size,
        "train_embedding": train_embedding,
        "text_tower": None if text_tower is None else dict(part.partition("=")[::2] for part in text_tower.split(",")),
        "text_encoder": text_encoder,
        "text_pooling": text_pooling,
        "text_prompt": text_prompt,
        "freeze_encoder": freeze_encoder or None,
        "train_layers": train_layers,
        "native_texts": native_texts,
        "steps": steps,
        "exposure_steps": exposure_steps,
        "license": license,
        "names": names,
        "trust_remote_code": trust_remote_code,
        "training": {
            "per_device_train_batch_size": batch_size,
            "learning_rate": learning_rate,
            "precision": precision,
            "bf16": bf16 or None,
            "seed": seed,
        },
    }
    if texts is not None:
        if way != "ridge" or advise or translations is not None or language is not None:
            raise typer.BadParameter(
                "the languages are those of the text encoder, by --way ridge: leave out --language, --translations "
                "and --advise",
                param_hint="--texts",
            )
        choices["texts"] = texts
    elif language is None or translations is None:
        raise typer.BadParameter(
            "name the language, and the file of its translations; or --texts in the native language",
            param_hint="--language, --translations",
        )
    if advise:
        print_advice(choices, way=way, as_json=as_json)
        return
    if output is None:
        raise typer.BadParameter("name the folder for the result", param_hint="--output")
    if assemble and way != "adapter":
        raise typer.BadParameter(f"the OUTPUT of --way {way} is a whole model already", param_hint="--assemble")
    if way == "ridge":
        if resume:
            raise typer.BadParameter("--way ridge begins anew: it takes a minute", param_hint="--resume")
        acquire_solved(choices, as_json=as_json)
        return
    acquire_language(choices, way=way, minutes=minutes, keep=keep, assemble=assemble, resume=resume, as_json=as_json)
