import numpy as np
import pytest

from babelens import Embedder, teach
from babelens.utils.errors import CorpusError, InputError
from tests.support.tiny_native import saved, tiny_clip

ROWS = [f"a {color} {thing}" for color in ("red", "green", "blue") for thing in ("car", "dog", "cat", "tree")]


def test_files_and_pairs_teach_the_same(tmp_path):
    base = str(saved(tiny_clip(), tmp_path / "base"))
    (tmp_path / "pairs.tsv").write_text(
        "\n".join(["en\tmi", *(f"{row}\t{row[::-1]}" for row in ROWS)]), encoding="utf-8"
    )
    file, pairs = str(tmp_path / "pairs.tsv"), [(row[::-1], row) for row in ROWS]
    found = []
    for name, sources in (("all", file), ("file", {"mi": file}), ("given", {"mi": pairs})):
        model = teach(base, sources, output=tmp_path / name, names=False)
        assert model.config.languages == ["mi"]
        embedder = Embedder.from_pretrained(str(tmp_path / name))
        found.append(embedder.encode_text([row[::-1] for row in ROWS], language="mi"))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    with pytest.raises(CorpusError, match="'uk'"):
        teach(base, {"uk": file}, names=False)
    with pytest.raises(InputError, match="'mi'"):
        teach(str(tmp_path / "all"), {"mi": pairs}, names=False)
