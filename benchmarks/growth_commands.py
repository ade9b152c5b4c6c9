"""The commands that `growth.py` measures, each against every size that grows with its user's data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from growth_inputs import Command, Inputs


@dataclass(frozen=True)
class Limit:
    """The largest exponent that the mathematics of a command allows, and why it may be above 1."""

    exponent: float = 1.0
    why: str = ""


@dataclass(frozen=True)
class Case:
    """A command against one size.

    Args:
        name: the command, and what of it is measured.
        grows: what its size counts.
        sizes: the sizes, ascending.
        command: what is measured: the command for a size, with an output path that does not exist yet.
        before: commands that prepare the output path, and are not measured.
        limit: how fast its time and memory may grow.
    """

    name: str
    grows: str
    sizes: tuple[int, ...]
    command: Callable[[Inputs, int, Path], Command]
    before: Callable[[Inputs, int, Path], list[Command]] = field(default=lambda inputs, size, output: [])
    limit: Limit = Limit()


IMAGES = (500, 2000, 8000)
SEARCHED = (2000, 8000, 32_000)
LANGUAGES = (8, 16, 32)
BATCHES = (128, 512, 2048)


# ---- Training ----


def train(inputs: Inputs, size: int, output: Path, *, method: str) -> Command:
    return _train(inputs, method, inputs.captions(size), output)


def train_languages(inputs: Inputs, size: int, output: Path) -> Command:
    return _train(inputs, "mural", inputs.captions(500, size), output)


def train_batch(inputs: Inputs, size: int, output: Path, *, method: str, **more: int) -> Command:
    """Two steps; the corpus has one size."""
    steps = {"max_steps": 2, "per_device_train_batch_size": size}
    return _train(inputs, method, inputs.captions(BATCHES[-1]), output, **steps, **more)


def _train(inputs: Inputs, method: str, corpus: Path, output: Path, **training: object) -> Command:
    return ["train", inputs.recipe(method, corpus, **training), "--output", output]


def acquire(inputs: Inputs, size: int, output: Path) -> Command:
    given = ["--base", inputs.model("clip"), "--language", "de", "--set", "names=false", "--output", output]
    return ["acquire", *given, "--translations", inputs.translations(size)]


def trim(inputs: Inputs, size: int, output: Path) -> Command:
    texts = ["--texts", inputs.texts(size), "--coverage", 0.9]
    return ["trim", inputs.model(), "--output", output, *texts]


# ---- Images and texts in, embeddings out ----


def search(inputs: Inputs, size: int, output: Path) -> Command:
    return ["search", inputs.model(), "en1 en2", "--images", inputs.images(size), "--language", "en"]


def known_search(inputs: Inputs, size: int, output: Path) -> list[Command]:
    return [search(inputs, size, output)]


def embed(inputs: Inputs, size: int, output: Path, *, ending: str, texts: bool = False) -> Command:
    read = ["--texts", inputs.texts(size), "--language", "en"] if texts else ["--images", inputs.images(size)]
    return ["embed", inputs.model(), "--output", f"{output}{ending}", *read]


def features(inputs: Inputs, size: int, output: Path) -> Command:
    sizes = ["--resize", 34, "--crop", 32, "--batch-size", 8]
    return ["features", inputs.model(), "--data", inputs.captions(size), "--output", output, *sizes]


# ---- Evaluation ----


def captions(
    inputs: Inputs, images: int, output: Path, *, languages: int = 2, options: tuple[str, ...] = ()
) -> Command:
    data = ["--data", inputs.captions(images, languages), "--output", f"{output}.json", *options]
    return ["evaluate", "captions", inputs.model(), *data]


def languages(inputs: Inputs, size: int, output: Path, *, options: tuple[str, ...] = ()) -> Command:
    return captions(inputs, 250, output, languages=size, options=options)


def classes(inputs: Inputs, size: int, output: Path, *, grows: str) -> Command:
    data, labels = inputs.classes(*((size, 20) if grows == "images" else (4000, size)))
    return ["evaluate", "classes", inputs.model(), "--data", data, "--labels", labels]


def texts(inputs: Inputs, size: int, output: Path) -> Command:
    return ["evaluate", "texts", inputs.model(), "--texts", inputs.translations(size)]


def text_languages(inputs: Inputs, size: int, output: Path) -> Command:
    return ["evaluate", "texts", inputs.model(), "--texts", inputs.translations(250, size)]


def compared(inputs: Inputs, size: int, output: Path) -> list[Command]:
    output.mkdir()
    return [
        ["evaluate", "captions", inputs.model(method), "--data", inputs.captions(size), "--output", output / file]
        for method, file in (("mural", "a.json"), ("etcl", "b.json"))
    ]


def compare(inputs: Inputs, size: int, output: Path) -> Command:
    return ["compare", output / "a.json", output / "b.json"]


def report(inputs: Inputs, size: int, output: Path) -> Command:
    return ["report", f"{output}.json"]


def reported(inputs: Inputs, size: int, output: Path) -> list[Command]:
    return [captions(inputs, size, output)]


# ---- Analyses ----


def analyze(
    inputs: Inputs, size: int, output: Path, *, kind: str, grows: str, options: tuple[object, ...] = ()
) -> Command:
    images, languages = (size, 4) if grows == "images" else (500, size)
    corpus = inputs.captions(images, languages)
    model = inputs.model("mural", languages) if kind == "languages" else inputs.model()
    given = [model, "--data", corpus, "--output", f"{output}.png", *options]
    if kind == "distances":
        given += ["--baseline", inputs.model("etcl")]
    if kind == "forgetting":
        given.insert(1, inputs.model("etcl"))
    return ["analyze", kind, *given]


# ---- Indexes ----


def index_build(inputs: Inputs, size: int, output: Path) -> Command:
    return ["index", "build", inputs.vectors(size), "--model", inputs.model(), "--output", output]


def built(inputs: Inputs, size: int, output: Path) -> list[Command]:
    return [index_build(inputs, size, output)]


def index_add(inputs: Inputs, size: int, output: Path) -> Command:
    """A tenth more."""
    return ["index", "add", output, inputs.vectors(size // 10, first=size), "--model", inputs.model()]


def index_delete(inputs: Inputs, size: int, output: Path) -> Command:
    return ["index", "delete", output, "--where", "width < 1000", "--compact"]


def index_search(inputs: Inputs, size: int, output: Path) -> Command:
    return ["index", "search", output, "en1 en2", "--language", "en", "--model", inputs.model()]


def data(inputs: Inputs, size: int, output: Path, *, write: bool = False) -> Command:
    return ["data", inputs.captions(size), *(["--output", output] if write else [])]


VECTORS = (200_000, 800_000, 3_200_000)
PAIRS = (1000, 4000, 16_000)
QUADRATIC = Limit(2.0, "every query is scored with all of the gallery; for each query it is linear")
TRIPLETS = Limit(2.0, "the triplet loss ranks all sentences of a batch for each image and each sentence")
PLANE = Limit(1.1, "t-SNE in the plane is N log N")
CORRELATED = Limit(2.0, "every two languages are compared; for each pair it is linear")
SCORED = Limit(2.0, "the scores of each language are joined with those of all others; for each pair it is linear")
PAIRED = Limit(2.0, "there are L (L - 1) pairs of languages; for each pair it is linear")

CASES = [
    *(
        Case(f"train {method}", "images", (250, 1000, 4000), partial(train, method=method))
        for method in ("mural", "etcl", "mla", "mla_student", "smalr", "liwe", "rc3")
    ),
    *(
        Case(f"train {method}, 2 steps", "batch", BATCHES, partial(train_batch, method=method))
        for method in ("mural", "etcl", "mla", "mla_student", "rc3")
    ),
    *(
        Case(f"train {method}, 2 steps", "batch", BATCHES, partial(train_batch, method=method), limit=TRIPLETS)
        for method in ("smalr", "liwe")
    ),
    Case(
        "train mural, 2 steps, chunks of 64",
        "batch",
        BATCHES,
        partial(train_batch, method="mural", embed_chunk_size=64, embed_chunks_kept=1),
    ),
    Case("train mural", "languages", LANGUAGES, train_languages),
    Case("acquire", "translation pairs", PAIRS, acquire),
    Case("trim", "texts", (10_000, 40_000, 160_000), trim),
    Case("search", "images", SEARCHED, search),
    Case("search, the second one", "images", SEARCHED, search, known_search),
    Case("embed to shards", "images", IMAGES, partial(embed, ending="")),
    Case("embed to one file", "images", IMAGES, partial(embed, ending=".parquet")),
    Case("embed to one file", "texts", (2000, 8000, 32_000), partial(embed, ending=".npy", texts=True)),
    Case("features", "images", (250, 1000, 4000), features),
    Case("evaluate captions", "images", IMAGES, captions, limit=QUADRATIC),
    Case("evaluate captions", "languages", LANGUAGES, languages),
    Case(
        "evaluate captions --consistency",
        "images",
        IMAGES,
        partial(captions, options=("--consistency",)),
        limit=QUADRATIC,
    ),
    Case(
        "evaluate captions --consistency",
        "languages",
        LANGUAGES,
        partial(languages, options=("--consistency",)),
        limit=SCORED,
    ),
    Case("evaluate classes", "images", IMAGES, partial(classes, grows="images")),
    Case("evaluate classes", "classes", (250, 1000, 4000), partial(classes, grows="classes")),
    Case("evaluate texts", "translation pairs", PAIRS, texts, limit=QUADRATIC),
    Case("evaluate texts", "languages", LANGUAGES, text_languages, limit=PAIRED),
    Case("compare", "images", IMAGES, compare, compared),
    Case("report", "images", IMAGES, report, reported),
    Case("analyze languages", "images", IMAGES, partial(analyze, kind="languages", grows="images")),
    Case(
        "analyze languages",
        "languages",
        LANGUAGES,
        partial(analyze, kind="languages", grows="languages"),
        limit=CORRELATED,
    ),
    Case("analyze distances", "images", IMAGES, partial(analyze, kind="distances", grows="images")),
    Case("analyze distances", "languages", LANGUAGES, partial(analyze, kind="distances", grows="languages")),
    *(
        Case(f"analyze {kind}", "images", IMAGES, partial(analyze, kind=kind, grows="images"), limit=QUADRATIC)
        for kind in ("agreement", "forgetting")
    ),
    *(
        Case(f"analyze {kind}", "languages", LANGUAGES, partial(analyze, kind=kind, grows="languages"))
        for kind in ("agreement", "forgetting")
    ),
    Case(
        "analyze captions", "languages", LANGUAGES, partial(analyze, kind="captions", grows="languages"), limit=PLANE
    ),
    Case(
        "analyze neighbors",
        "images",
        IMAGES,
        partial(analyze, kind="neighbors", grows="images", options=("--language", "en", "--query", "en1 en2")),
    ),
    Case("index build", "vectors", VECTORS, index_build),
    Case("index add, a tenth more", "vectors", VECTORS, index_add, built),
    Case("index delete --compact, half", "vectors", VECTORS, index_delete, built),
    Case("index search", "vectors", VECTORS, index_search, built),
    Case("data", "images", SEARCHED, data),
    Case("data --output", "images", SEARCHED, partial(data, write=True)),
]
