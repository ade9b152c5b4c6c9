"""Multi30K for multimodal translation (Elliott et al. 2016): Flickr30K's images with translations of a sentence in
several languages, from the files of its repository.

    train.en.gz  train.de.gz  train.fr.gz       one sentence in each line, plain or compressed; the lines correspond
    train.txt or train_images.txt               the file name of the image of each line

Other splits are `val`, `test_2016_flickr`, `test_2017_flickr`, `test_2017_mscoco`, `test_2018_flickr`.
"""

from pathlib import Path

from datasets import Dataset, Image, Value

from ...configuration.errors import CorpusError
from ...configuration.languages import normalize_languages
from ..corpus.corpus import CAPTIONS
from ..corpus.text_files import read_texts
from .task_files import image_path, task_dataset


def load_multi30k(
    folder: str | Path,
    split: str,
    languages: list[str] | tuple[str, ...],
    *,
    images: str | Path | None = None,
) -> Dataset:
    """A caption corpus with one sentence in each language for each image, for `triplets`.

    Columns: `image` (if `images` is given), `image_id` (the file name of the image), `captions`.

    Args:
        folder: the folder of the files above; or the folder `task1` of the repository, in which the sentences are in
            `raw` and the names of the images in `image_splits`.
        split: the split, as in the names of the files.
        languages: the languages to read.
        images: the folder of the images. In `test_2017_mscoco`, the number of the caption follows their names after a
            `#`, and is left out.

    Raises:
        CorpusError: if files are missing, or have different numbers of lines.
        BadTextError: for an empty sentence; the message names the file and the line.
        BadImageError: for an image that is not in the folder.
    """
    tags = normalize_languages(list(languages))
    names_file = _found(folder, [f"{split}.txt", f"{split}_images.txt"], "image_splits")
    columns = {tag: read_texts(_found(folder, [f"{split}.{tag}", f"{split}.{tag}.gz"], "raw")) for tag in tags}
    names = [name.strip() for name in read_texts(names_file)]
    for tag, lines in columns.items():
        if len(lines) != len(names):
            raise CorpusError(f"{folder}: {split} has {len(lines)} sentences in {tag} and {len(names)} images")
    rows = []
    for line, name in enumerate(names):
        image_id = name.partition("#")[0]
        row = {
            "image_id": image_id,
            "captions": [{"language": tag, "text": lines[line].strip()} for tag, lines in columns.items()],
        }
        if images is not None:
            row["image"] = image_path(images, image_id, f"{names_file} line {line + 1}")
        rows.append(row)
    return task_dataset(rows, {"image": Image(), "image_id": Value("string"), "captions": CAPTIONS}, names_file)


def _found(folder: str | Path, names: list[str], subfolder: str) -> Path:
    for path in (Path(folder) / within / name for within in ("", subfolder) for name in names):
        if path.is_file():
            return path
    raise CorpusError(f"{folder}: there is no {' or '.join(names)}, here or in {subfolder}")
