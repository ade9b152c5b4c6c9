"""`babelens acquire`: a model learns more languages."""

from pathlib import Path
from typing import Annotated

import typer

from ..utils.identity import check_free
from ..utils.languages import normalize_languages
from .checks import check_columns, checked_model, checked_source, checked_tags
from .options import AsJson, Settings, TrustRemoteCode, settings_of
from .starting import begin_work

_DATA = "Data"
_ENCODER = "Text encoder"


def acquire(
    base: Annotated[
        str,
        typer.Option(
            callback=checked_model,
            help="The model that learns the language: a dual encoder of transformers (CLIP, SigLIP, ALIGN, …) or of "
            "babelens (MURAL, ETCL, MLA), a model of sentence-transformers, or a table of vectors (`.parquet`); a "
            "file, a folder, or a name on the Hub.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            help="The folder for the model.",
            show_default=False,
        ),
    ],
    language: Annotated[
        str | None,
        typer.Option(
            callback=checked_tags,
            help="The language to learn, as a BCP-47 tag such as `uk`; several at once: `uk,pl,cs`; or `all` of the "
            "translations.",
            show_default=False,
        ),
    ] = None,
    translations: Annotated[
        str | None,
        typer.Option(
            callback=checked_source,
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
            callback=checked_source,
            help="Without translations: sentences in the native language alone, a `.txt` file with one a line, or "
            "captioned images. All languages that --text-encoder reads come along.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    dictionary: Annotated[
        str | None,
        typer.Option(
            callback=checked_source,
            help="Words in that language and in the native language, in the same forms as --translations. With "
            "--texts, in any languages. Where a word has several translations, the one that the native texts say most "
            "often is taken.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
    text_encoder: Annotated[
        str | None,
        typer.Option(
            callback=checked_model,
            help="A multilingual text encoder, such as `intfloat/multilingual-e5-small`; a folder, or a name on the "
            "Hub. It stays as it is.",
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
    license: Annotated[
        str | None,
        typer.Option(
            help="License of the result, by its name on the Hub: `cc-by-4.0`.",
            rich_help_panel=_DATA,
            show_default="other",
        ),
    ] = None,
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

    Every other choice is a key for --set: `ngram_rows`, `glossaries` (false for none), `names` (false: without CLDR's
    names of emoji), `text_pooling`, `native_language`, `batch_size`, `precision`. To train an adapter or a student
    from hundreds of thousands of sentences instead: `babelens train mla/adapter`, `babelens train mla/student`.
    """
    if texts is not None:
        if language is not None or translations is not None:
            raise typer.BadParameter(
                "the languages are those of the text encoder: leave out --language and --translations",
                param_hint="--texts",
            )
    elif language is None or translations is None:
        raise typer.BadParameter(
            "name the language, and the file of its translations; or --texts in the native language",
            param_hint="--language, --translations",
        )
    choices = {
        "language": language,
        "translations": translations,
        "texts": texts,
        "dictionary": dictionary,
        "text_encoder": text_encoder,
        "text_prompt": text_prompt,
        "license": license,
    }
    settled = settings_of(settings)
    check_free(output)
    if language is not None and translations is not None and language != "all":
        check_columns(translations, normalize_languages(language.split(",")))
    begin_work()
    from .acquire_work import acquire_languages

    given = {name: value for name, value in choices.items() if value is not None}
    acquire_languages(base, given, settled, output, trust_remote_code=trust_remote_code, as_json=as_json)
