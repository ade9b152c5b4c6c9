"""`babelens info`: shows the size of a model or a preset, or the contents of a data set."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.errors import ModelFolderError
from .common import (
    PUBLISHED_TOO,
    AsJson,
    SourceOptions,
    TrustRemoteCode,
    begin_work,
    check_source,
    plain_console,
    print_json,
    read_source,
    results_table,
)

if TYPE_CHECKING:
    from datasets import Dataset

_EMOJI = "emoji"


def info(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A model (a folder, or a name on the Hugging Face Hub), a preset such as `mural-base`, or captioned "
            f"images: {PUBLISHED_TOO}, `emoji`.",
            callback=check_source,
        ),
    ],
    options: SourceOptions = None,
    output: Annotated[
        Path | None, typer.Option(help="A new folder to write captioned images into, as a data set.")
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Show the size of a model or a preset, or the contents of a data set.

    `babelens info mural-base` compares parameter counts with the paper's. Only the configuration is read, and no
    weights are fetched.

    `babelens info photos` reads data as `babelens train` does, and lists images that cannot be used. `babelens info
    products.csv --output products` writes a data set.
    """
    begin_work()
    if not (options or output) and source != _EMOJI and _is_model(source):
        _show_model(parameter_facts(source, trust_remote_code=trust_remote_code), as_json)
        return
    from ..data.corpus.loading import SkippedImage
    from ..utils.files import new_folder

    skipped: list[SkippedImage] = []
    corpus = read_source(source, options, skipped=skipped)
    facts: dict[str, Any] = {"source": source} | corpus_statistics(corpus)
    if source == _EMOJI:
        from ..data.emoji.build import read_sources

        sources = read_sources().values()
        shown = ("package", "version", "license", "attribution", "url")
        facts["licenses"] = [{"name": each["title"]} | {key: each[key] for key in shown} for each in sources]
    facts["skipped"] = [asdict(each) for each in skipped]
    if as_json:
        print_json(facts)
    else:
        _show_data(facts)
    if output:
        with new_folder(output) as unfinished:
            corpus.save_to_disk(unfinished)


def _is_model(source: str) -> bool:
    """Returns whether a source is a model or a preset rather than data; a Hub name is a model if it loads as one."""
    from ..data.readers.published import PUBLISHED
    from ..presets import list_presets
    from ..utils.pretrained import load_config

    path = Path(source)
    if source in list_presets():
        return True
    if path.is_dir():
        return any((path / name).is_file() for name in ("config.json", "adapter_config.json"))
    if path.exists() or source in PUBLISHED or any(mark in source for mark in "*?{:"):
        return False
    try:
        load_config(source)
    except ModelFolderError as error:
        if "/" not in source:
            raise ModelFolderError(f"{error}. It is not a preset either: {', '.join(list_presets())}") from None
        if "trust" in str(error):
            return True
        from huggingface_hub import HfApi

        try:
            return not HfApi().repo_exists(source, repo_type="dataset")
        except OSError:
            return True
    return True


# ---- Models ----


def parameter_facts(model: str, *, trust_remote_code: bool = False) -> dict[str, Any]:
    """Parameter counts of a preset, a folder or a Hub model; `paper` and `source` are empty if there is no paper."""
    import torch
    from transformers import AutoModel

    from ..presets import list_presets, load_preset, preset_facts
    from ..registry import METHODS
    from ..utils.pretrained import load_config

    if model in list_presets():
        config: Any = load_preset(model)
        facts = preset_facts(model)
    else:
        config, facts = load_config(model, trust_remote_code=trust_remote_code), {}
    # The model that a configuration was saved with, if a method has several.
    method, names = METHODS.get(config.model_type), config.architectures or ()
    saved = [each for each in (method.models if method else ()) if each.__name__ in names]
    with torch.device("meta"):
        made = saved[0](config) if saved else AutoModel.from_config(config, trust_remote_code=trust_remote_code)
    if hasattr(made, "parts"):
        parts = made.parameter_parts()
    else:
        parts = {name: sum(p.numel() for p in module.parameters()) for name, module in made.named_children()}
        parts |= {"other": sum(p.numel() for p in made.parameters()) - sum(parts.values())}
    return {
        "model": model,
        "model_type": config.model_type,
        "parameters": {"total": sum(parts.values())} | parts,
        "paper": {part: round(millions * 1e6) for part, millions in facts.get("paper", {}).items()},
        "source": facts.get("source", ""),
    }


def _show_model(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    paper = facts["paper"]
    headings = ("parameters", "paper", "difference") if paper else ("parameters",)
    table = results_table("part", *headings, title=f"{facts['model']} ({facts['model_type']})")
    for part, count in facts["parameters"].items():
        compared = (f"{paper[part] / 1e6:,.0f} M", f"{count / paper[part] - 1:+.1%}") if part in paper else ()
        table.add_row(part, f"{count:,}", *compared, end_section=part == "total")
    plain_console().print(table)
    if facts["source"]:
        plain_console().print(f"Paper: {facts['source']}")


# ---- Data ----


def corpus_statistics(corpus: "Dataset") -> dict[str, Any]:
    """Counts of a caption corpus: images, distinct image ids, captions by language with mean length, and splits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ..data.corpus.corpus import captions_of

    captions = pc.list_flatten(captions_of(corpus))
    lengths = pc.utf8_length(pc.struct_field(captions, "text"))
    table = pa.table({"language": pc.struct_field(captions, "language"), "characters": lengths})
    rows = table.group_by("language").aggregate([("characters", "count"), ("characters", "mean")]).sort_by("language")
    return {
        "images": len(corpus),
        "image_ids": len(set(corpus["image_id"])),
        "captions": len(table),
        "languages": {
            row["language"]: {"captions": row["characters_count"], "mean_characters": round(row["characters_mean"], 1)}
            for row in rows.to_pylist()
        },
        "splits": dict(Counter(corpus["split"])) if "split" in corpus.column_names else {},
    }


def _show_data(facts: dict[str, Any]) -> None:
    console = plain_console()
    title = f"{facts['source']}: {facts['images']:,} images, {facts['image_ids']:,} image ids"
    table = results_table("language", "captions", "characters on average", title=title)
    for tag, numbers in facts["languages"].items():
        table.add_row(tag, f"{numbers['captions']:,}", f"{numbers['mean_characters']:.1f}")
    console.print(table)
    if facts["splits"]:
        console.print("Splits: " + ", ".join(f"{split} {number:,}" for split, number in facts["splits"].items()))
    for each in facts.get("licenses", ()):
        console.print(
            f"{each['name']} ({each['package']} {each['version']}): {each['license']}, {each['attribution']}"
        )
    if facts["skipped"]:
        console.print(f"Images left out: {len(facts['skipped'])}", style="bold")
        for each in facts["skipped"]:
            console.print(f"- {each['place']}: {each['reason']}")
