"""The regions of several files as one mapping."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..utils.errors import RegionError, UnknownImageError
from .regions import RegionFeatures, open_regions

_LANGUAGE = "{language}"


class LanguageRegions(Mapping[str, np.ndarray]):
    """The regions of a file for each language, whose images are named `<language>/<name>`, as `load_marvl` names them:
    MaRVL's images in different languages have the same names.

    Args:
        pattern: the path of the files, with `{language}` in it.
        files: language -> regions.
    """

    def __init__(self, pattern: str, files: Mapping[str, RegionFeatures]) -> None:
        self.path, self.files = pattern, files

    def __getitem__(self, image_id: str) -> np.ndarray:
        language, _, name = image_id.partition("/")
        if language not in self.files or not name:
            raise UnknownImageError(f"{self.path}, image {image_id!r}: there is no such image{self.hint()}")
        return self.files[language][name]

    def __contains__(self, image_id: object) -> bool:
        language, _, name = str(image_id).partition("/")
        return bool(name) and language in self.files and name in self.files[language]

    def hint(self) -> str:
        """What the names of images look like, for errors."""
        return f"; there are files of {', '.join(self.files)}, whose images are named '<language>/<name>'"

    def __iter__(self) -> Iterator[str]:
        return (f"{language}/{name}" for language, file in self.files.items() for name in file)

    def __len__(self) -> int:
        return sum(map(len, self.files.values()))


class SeveralRegions(Mapping[str, np.ndarray]):
    """The regions of several files as one mapping; if several have an image, the first counts.

    Raises:
        UnknownImageError: if none has an image that is asked for; `get` returns its default instead.
        RegionError: if an image in a folder, such as `id/39-1`, is in several files that do not name the folder.
    """

    def __init__(self, *files: RegionFeatures | LanguageRegions) -> None:
        self.files = files

    def __getitem__(self, image_id: str) -> np.ndarray:
        having = [file for file in self.files if image_id in file]
        if not having:
            looks = "".join(f"; {file.path}{file.hint().replace('; ', ': ', 1)}" for file in self.files)
            raise UnknownImageError(f"{_named(self.files)}, image {image_id!r}: there is no such image{looks}")
        if "/" in image_id and len(having) > 1 and all(_without_folder(file, image_id) for file in having):
            raise RegionError(
                f"image {image_id!r}: {_named(having)} have images of that name, which need not be the same; name the "
                "files by one path with {language} in it"
            )
        return having[0][image_id]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(image_id for file in self.files for image_id in file))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def open_language_regions(pattern: str, *, region_size: int = 2048, max_regions: int = 36) -> LanguageRegions:
    """The regions of a file for each language.

    Args:
        pattern: the path of the files, with `{language}` in it, such as `marvl-{language}_boxes36.h5`.
        region_size, max_regions: as in `Rc3Config`.

    Raises:
        RegionError: if there is no such file, and as `RegionFeatures`.
    """
    path = Path(pattern)
    before, after = path.name.split(_LANGUAGE)
    files = {
        file.name[len(before) : len(file.name) - len(after)]: open_regions(
            file, region_size=region_size, max_regions=max_regions
        )
        for file in sorted(path.parent.glob(f"{before}*{after}"))
    }
    if not files:
        raise RegionError(f"{pattern}: no such file for any language")
    return LanguageRegions(pattern, files)


def open_joined_regions(files: Sequence[str], *, region_size: int = 2048, max_regions: int = 36) -> SeveralRegions:
    """The regions of several files; of a path with `{language}` in its name, those of a file for each language.

    Args:
        files: the paths.
        region_size, max_regions: as in `Rc3Config`.

    Raises:
        RegionError, ImportError: as `RegionFeatures`.
    """
    return SeveralRegions(
        *(
            (open_language_regions if _LANGUAGE in file else open_regions)(
                file, region_size=region_size, max_regions=max_regions
            )
            for file in files
        )
    )


def _named(files: Sequence[RegionFeatures | LanguageRegions]) -> str:
    return ", ".join(str(file.path) for file in files)


def _without_folder(file: RegionFeatures | LanguageRegions, image_id: str) -> bool:
    """Whether a file has an image under a name without the folder in its id."""
    return isinstance(file, RegionFeatures) and "/" not in (file.key_of(image_id) or "")
