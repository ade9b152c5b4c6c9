"""A hook of MkDocs: addresses of pages that have moved lead to where their text is now.

Guides were merged into twelve pages; who has a link to an old page, in a bookmark or a model's card, still arrives.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

# The old page, and the page and heading that it is now.
MOVED = {
    "how-to/classify-images": "search-and-serve.html#classify-images-in-any-language",
    "how-to/compare-runs": "judge-a-model.html#seeds-and-comparisons",
    "how-to/embed-at-scale": "search-millions.html#embed-at-scale",
    "how-to/emoji-benchmark": "your-data.html#measure-on-the-emoji-benchmark",
    "how-to/freeze-a-tower": "start-from-pretrained-towers.html#freeze-or-half-freeze-a-tower",
    "how-to/integrations": "other-libraries.html#integrations",
    "how-to/judge-with-mteb": "judge-a-model.html#judge-with-mteb",
    "how-to/many-machines": "large-batches.html#many-devices-and-machines",
    "how-to/models-like-transformers": "other-libraries.html#models-as-in-transformers",
    "how-to/sentence-transformers": "other-libraries.html#use-a-model-in-sentence-transformers",
    "how-to/systems": "large-batches.html#systems-cores-and-two-processes",
    "how-to/transformers-pipelines": "other-libraries.html#transformers-pipelines",
    "how-to/translation-baselines": "judge-a-model.html#translation-baselines",
}
_PAGE = """<!doctype html>
<meta charset="utf-8"><title>Moved</title>
<meta http-equiv="refresh" content="0; url={target}"><link rel="canonical" href="{target}">
<p>This page has moved: <a href="{target}">{target}</a>.</p>
"""


def on_post_build(config: MkDocsConfig) -> None:
    """Writes a page at each old address that leads on."""
    for old, target in MOVED.items():
        Path(config.site_dir, f"{old}.html").write_text(_PAGE.format(target=target), encoding="utf-8")
