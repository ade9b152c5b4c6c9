"""Writes captioned images with machine translations of their captions, to train on them or to search with them.

python examples/translate_captions.py photos facebook/nllb-200-distilled-600M --translate en:zh,ja --output photos-zh

The translator is a model of transformers, a folder or a name on the Hub, or a file of translations (`.tsv`, `.jsonl`).
Translations are kept on disk and made once.
"""

import argparse

from babelens.cli.common import read_source
from babelens.data.corpus.corpus import with_captions
from babelens.inference.translation import open_translator, translated_captions
from babelens.utils.files import new_folder


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="captioned images, as for `babelens evaluate captions --data`")
    parser.add_argument("translator")
    parser.add_argument("--option", action="append", help="an option of the data, NAME=VALUE; repeatable")
    parser.add_argument("--split")
    parser.add_argument(
        "--translate",
        action="append",
        required=True,
        help="the language of the captions and those to translate them into: en:de,fr; repeatable",
    )
    parser.add_argument("--everywhere", action="store_true", help="also where an image has captions in the language")
    parser.add_argument(
        "--replace", action="store_true", help="replace the captions that images have in the languages"
    )
    parser.add_argument("--output", required=True, help="a new folder")
    given = parser.parse_args(arguments)
    corpus, translator = read_source(given.data, given.option, split=given.split), open_translator(given.translator)
    own = [list(row) for row in corpus.with_format(None)["captions"]]
    directions = {source: targets.split(",") for source, targets in (each.split(":") for each in given.translate)}
    replaced = {tag for targets in directions.values() for tag in targets} if given.replace else set()
    rows = [[each for each in row if each["language"] not in replaced] for row in own]
    for source, targets in directions.items():  # of the captions that the data have, not of their translations
        options = {"source": source, "targets": targets, "everywhere": given.everywhere, "replace": given.replace}
        found = translated_captions(corpus, translator, **options).with_format(None)["captions"]
        for row, before, after in zip(rows, own, found, strict=True):
            kept = [each for each in before if not given.replace or each["language"] not in targets]
            row += after[len(kept) :]  # translations follow the captions that an image keeps
    with new_folder(given.output) as folder:
        with_captions(corpus, rows).save_to_disk(folder)


if __name__ == "__main__":
    main()
