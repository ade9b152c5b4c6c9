"""Writes captioned images with machine translations of their captions, to train on them or to search with them.

python examples/translate_captions.py photos facebook/nllb-200-distilled-600M --targets zh,ja --output photos-zh-ja

The translator is a model of transformers, a folder or a name on the Hub, or a file of translations (`.tsv`, `.jsonl`).
"""

import argparse

from babelens.data import load_captions, save_captions
from babelens.inference.translated_captions import translated_captions
from babelens.inference.translation_cache import open_translator


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="captioned images: a folder, a file, or a data set on the Hub")
    parser.add_argument("translator")
    parser.add_argument("--split")
    parser.add_argument("--source", default="en", help="the language of the captions to translate")
    parser.add_argument("--targets", required=True, help="the languages to translate into, separated by commas")
    parser.add_argument("--replace", action="store_true", help="replace the captions that images have in the targets")
    parser.add_argument("--output", required=True, help="a new folder")
    given = parser.parse_args(arguments)
    corpus = load_captions(given.data, split=given.split)
    languages = {"source": given.source, "targets": given.targets.split(",")}
    save_captions(
        translated_captions(corpus, open_translator(given.translator), replace=given.replace, **languages),
        given.output,
    )


if __name__ == "__main__":
    main()
