# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One search, five languages
#
# In ten minutes this notebook
#
# 1. draws a small collection of images and writes captions and translations as you would bring your own,
# 2. trains a MURAL that finds images by English, German and Spanish texts, although no image has a Spanish caption,
# 3. teaches the finished model French, while everything that it has learned before stays as it is,
# 4. saves the result and loads it with transformers' `AutoModel`, and
# 5. teaches it Māori in a second, from thirty sentences.
#
# It needs neither a GPU nor a network. The images are simple on purpose, so that a model learns them in a minute.

# %%
import json
import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from transformers import AutoModel, AutoProcessor, set_seed

from babelens import (
    ContrastiveTrainingArguments,
    Embedder,
    MlaModel,
    MlaProcessor,
    MlaTrainer,
    MlaTrainingArguments,
    MuralImageProcessor,
    MuralModel,
    MuralProcessor,
    MuralTrainer,
    RidgeModel,
    RidgeProcessor,
    load_preset,
    train_wordpiece,
)
from babelens.data import load_captions, load_translations
from babelens.evaluation import evaluate_retrieval
from babelens.trainers.ridge import learn

STEPS = int(os.environ.get("TUTORIAL_STEPS", "300"))
FOLDER = Path(os.environ.get("TUTORIAL_FOLDER", "runs/tutorial"))
set_seed(0)

# %% [markdown]
# ## 1 The data
#
# A *caption corpus* is a folder of images with a `metadata.jsonl`. Each line names an image and its captions by
# language, and an `image_id` that images of the same thing share.
#
# We draw thirty things, five shapes in six colors, each several times in another place and size.

# %%
# The color of the pen, German without an ending, and Spanish and French for nouns of either gender.
COLORS = {
    "red": ("#d62728", "rot", ("rojo", "roja"), ("rouge", "rouge")),
    "green": ("#2ca02c", "grün", ("verde", "verde"), ("vert", "verte")),
    "blue": ("#1f5fd6", "blau", ("azul", "azul"), ("bleu", "bleue")),
    "yellow": ("#f2c80f", "gelb", ("amarillo", "amarilla"), ("jaune", "jaune")),
    "black": ("#111111", "schwarz", ("negro", "negra"), ("noir", "noire")),
    "purple": ("#8e3ab5", "violett", ("violeta", "violeta"), ("violet", "violette")),
}
SHAPES = {
    "square": ("es Quadrat", "un cuadrado", "un carré"),
    "circle": ("er Kreis", "un círculo", "un cercle"),
    "triangle": ("es Dreieck", "un triángulo", "un triangle"),
    "star": ("er Stern", "una estrella", "une étoile"),
    "cross": ("es Kreuz", "una cruz", "une croix"),
}


def captions_of(color: str, shape: str) -> dict[str, str]:
    """Says in four languages what an image shows."""
    _, german, spanish, french = COLORS[color]
    german_noun, spanish_noun, french_noun = SHAPES[shape]
    return {
        "en": f"a {color} {shape}",
        "de": f"ein {german}{german_noun}",
        "es": f"{spanish_noun} {spanish[spanish_noun.startswith('una')]}",
        "fr": f"{french_noun} {french[french_noun.startswith('une')]}",
    }


def draw(color: str, shape: str, rng: np.random.Generator) -> Image.Image:
    """Draws a shape somewhere on a square of 48 pixels."""
    image = Image.new("RGB", (48, 48), "white")
    radius = rng.uniform(12, 18)
    x, y = rng.uniform(radius, 48 - radius, size=2)
    pen, fill = ImageDraw.Draw(image), COLORS[color][0]
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "square":
        pen.rectangle(box, fill)
    elif shape == "circle":
        pen.ellipse(box, fill)
    elif shape == "cross":
        pen.rectangle((x - radius, y - radius / 3, x + radius, y + radius / 3), fill)
        pen.rectangle((x - radius / 3, y - radius, x + radius / 3, y + radius), fill)
    else:  # a star has five points, between which the outline comes nearer to the center
        corners, inner = (3, 1.0) if shape == "triangle" else (10, 0.4)
        angles = -np.pi / 2 + 2 * np.pi * np.arange(corners) / corners
        lengths = radius * np.where(np.arange(corners) % 2, inner, 1.0)
        pen.polygon([(x + r * np.cos(a), y + r * np.sin(a)) for a, r in zip(angles, lengths, strict=True)], fill)
    return image


THINGS = [(color, shape) for color in COLORS for shape in SHAPES]
print(len(THINGS), "things, such as", captions_of("red", "star"))

# %% [markdown]
# The training images get only English and German captions. The test images get captions in all four languages, so
# that we can measure each of them.


# %%
def write_corpus(folder: Path, copies: int, languages: list[str], seed: int) -> None:
    """Writes images and their metadata.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, lines = np.random.default_rng(seed), []
    for copy in range(copies):
        for color, shape in THINGS:
            name = f"{color}-{shape}-{copy}.png"
            draw(color, shape, rng).save(folder / name)
            captions = {tag: text for tag, text in captions_of(color, shape).items() if tag in languages}
            lines.append(json.dumps({"file_name": name, "image_id": f"{color}-{shape}", "captions": captions}))
    (folder / "metadata.jsonl").write_text("\n".join(lines), encoding="utf-8")


write_corpus(FOLDER / "train", copies=12, languages=["en", "de"], seed=1)
write_corpus(FOLDER / "test", copies=2, languages=["en", "de", "es", "fr"], seed=2)
train = load_captions(FOLDER / "train")
test = load_captions(FOLDER / "test")
print(train)

# %%
Image.fromarray(np.hstack([np.array(image) for image in test["image"][:10]]))

# %% [markdown]
# Translations are a table with a header of language tags. Spanish and French have nothing else.


# %%
def write_translations(file: Path, languages: list[str]) -> None:
    """Writes translation pairs, one row for each thing."""
    rows = [[captions_of(*thing)[tag] for tag in languages] for thing in THINGS]
    file.write_text("\n".join("\t".join(row) for row in [languages, *rows]), encoding="utf-8")


write_translations(FOLDER / "en-es.tsv", ["en", "es"])
write_translations(FOLDER / "en-fr.tsv", ["en", "fr"])
spanish = load_translations(FOLDER / "en-es.tsv")
print(spanish[0])

# %% [markdown]
# ## 2 A model for three languages
#
# MURAL is a *dual encoder*: one tower embeds images, the other one texts, and both meet in one space. It has two
# training tasks. `image_text` brings an image and its caption together, `text_text` a text and its translation.
# Through the second one, Spanish texts come to lie where the images are.
#
# A model needs a *processor*, which prepares images and texts. Its tokenizer is trained on the texts that we have.

# %%
texts = [caption["text"] for corpus in (train, spanish) for row in corpus["captions"] for caption in row]
processor = MuralProcessor(
    MuralImageProcessor(size={"height": 36, "width": 36}, crop_size={"height": 32, "width": 32}),
    train_wordpiece(texts, vocab_size=300),
)
config = load_preset(
    "mural-tiny",
    text_config={"vocab_size": len(processor.tokenizer), "num_hidden_layers": 1},
    vision_config={"embedding_size": 16, "hidden_sizes": [32, 64, 128], "depths": [1, 1, 1]},
)
model = MuralModel(config)
print(f"{model.num_parameters():,} parameters")

# %% [markdown]
# The trainer is transformers' `Trainer`, and `ContrastiveTrainingArguments` are its `TrainingArguments` with what
# contrastive training adds. A text-text loss that weighs more than the paper's tenth suits so few translations.

# %%
trainer = MuralTrainer(
    model,
    ContrastiveTrainingArguments(
        output_dir=str(FOLDER / "mural"),
        max_steps=STEPS,
        per_device_train_batch_size=30,
        learning_rate=2e-3,
        optim="adamw_torch",
        task_weights={"text_text": 0.3},
        warmup_steps=STEPS // 10,
        logging_steps=max(STEPS // 6, 1),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    ),
    processing_class=processor,
    train_dataset={"image_text": train, "text_text": spanish},
)
trainer.train()

# %% [markdown]
# ### How well does it find images?
#
# `evaluate_retrieval` lets every caption search all test images, and every image all captions, in each language.
# `t2i_r1` says how many percent of the texts find a right image first. By chance that would be about 3 percent.
# French, which the model has never read, shows what shared letters alone are worth.

# %%
LANGUAGES = ["en", "de", "es", "fr"]


def show(results: dict[str, dict[str, float]]) -> None:
    """Prints recall by language."""
    print("language   t2i_r1   t2i_r5   i2t_r1")
    for language, numbers in results.items():
        print(f"{language:8} {numbers['t2i_r1']:8.1f} {numbers['t2i_r5']:8.1f} {numbers['i2t_r1']:8.1f}")


embedder = Embedder(model, processor)
before = evaluate_retrieval(embedder, test, LANGUAGES)
show(before)

# %% [markdown]
# ### Search
#
# An *embedding* is a vector of unit length, so that a matrix product compares a query with all images at once.

# %%
images = embedder.encode_image(test["image"])  # [N, d]


def search(embedder: Embedder, query: str, language: str) -> Image.Image:
    """Shows the five images that are nearest to a query."""
    scores = images @ embedder.encode_text(query, language=language)[0]  # [N]
    return Image.fromarray(np.hstack([np.array(test[int(index)]["image"]) for index in (-scores).argsort()[:5]]))


search(embedder, "una estrella roja", "es")

# %% [markdown]
# ## 3 One more language for a finished model
#
# MLA leaves a model as it is and adds *acquirers*, small layers behind each block of the text tower that only texts of
# the new language pass through. They are trained on translations: a French text shall get the embedding of its English
# translation. French comes with its own vocabulary.

# %%
french = load_translations(FOLDER / "en-fr.tsv")
french_texts = [caption["text"] for row in french["captions"] for caption in row]
tokenizer = train_wordpiece(french_texts, vocab_size=300)
mla_processor = MlaProcessor.for_native(model.config, processor, tokenizer, languages=["fr"])
mla = MlaModel.from_native(
    model,
    languages=["fr"],
    vocab_size=len(tokenizer),
    sep_token_id=tokenizer.sep_token_id,
    embedding_size=64,
    acquirer_size=64,
)
mla_trainer = MlaTrainer(
    mla,
    MlaTrainingArguments(
        output_dir=str(FOLDER / "mla"),
        max_steps=STEPS,
        per_device_train_batch_size=30,
        learning_rate=3e-3,
        logging_steps=max(STEPS // 6, 1),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    ),
    processing_class=mla_processor,
    train_dataset={"text_text": french},
    cache_dir=str(FOLDER / "features"),
)
mla_trainer.train()

# %%
acquired = Embedder(mla, mla_processor)
show(evaluate_retrieval(acquired, test, ["en", "fr"]))

# %% [markdown]
# The images are embedded as before, and so are English texts. Only French has changed.

# %%
english = [captions_of(*thing)["en"] for thing in THINGS]
change = np.abs(acquired.encode_text(english, language="en") - embedder.encode_text(english, language="en")).max()
print("greatest change of an English embedding:", change)
search(acquired, "une étoile rouge", "fr")

# %% [markdown]
# On the command line, `babelens acquire` does the same to the CLIP that you have.
#
# ## 4 Save and load
#
# A saved folder is an ordinary model of transformers. With `trust_remote_code=True` it also loads where babelens is
# not installed.

# %%
mla.save_pretrained(FOLDER / "model")
mla_processor.save_pretrained(FOLDER / "model")
loaded = Embedder(AutoModel.from_pretrained(FOLDER / "model"), AutoProcessor.from_pretrained(FOLDER / "model"))
french_queries = [captions_of(*thing)["fr"] for thing in THINGS]
difference = loaded.encode_text(french_queries, language="fr") - acquired.encode_text(french_queries, language="fr")
print("greatest difference to the model that was saved:", np.abs(difference).max())

# %% [markdown]
# ## 5 A language that no model reads
#
# Māori is read by none of the usual multilingual encoders. It needs none: where the model puts a translation follows
# from the character n-grams of a text by ridge regression, which is solved and not trained. Thirty sentences are
# enough for our thirty things; a thousand are for photographs.

# %%
MAORI = {"red": "whero", "green": "kākāriki", "blue": "kikorangi", "yellow": "kōwhai", "black": "pango"}
MAORI |= {"purple": "poroporo", "square": "tapawhā", "circle": "porohita", "triangle": "tapatoru"}
MAORI |= {"star": "whetū", "cross": "rīpeka"}
sentences = [f"he {MAORI[shape]} {MAORI[color]}" for color, shape in THINGS]

solved = RidgeModel.from_native(model)
solved_processor = RidgeProcessor.for_native(model.config, processor)
learned = learn(solved, solved_processor, {"mi": (sentences, english)}, cache_dir=str(FOLDER / "features"))
print(f"{learned['mi'].r1:.0f} % find their translation first, by a map that was solved without them")
search(Embedder(solved, solved_processor), "he whetū whero", "mi")
for part in (solved, solved_processor):
    part.save_pretrained(FOLDER / "maori")

# %% [markdown]
# ## Where to go from here
#
# - The same for your CLIP and photos: `babelens acquire`, then `babelens serve OUTPUT --images photos`.
# - Your own photos: write a `metadata.jsonl` next to them, as above, and call `load_captions`.
# - Scripts with every setting on the command line: [examples/](README.md).
# - All of it from a file that can be run again: `babelens train RECIPE`.
