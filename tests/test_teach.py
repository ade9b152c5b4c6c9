import numpy as np
import pytest

from babelens import Embedder, teach
from babelens.utils.errors import CorpusError, InputError
from tests.support.acquire_command import MIRRORED, ROWS
from tests.support.tiny_native import saved, tiny_clip


def test_files_and_pairs_teach_the_same(tmp_path):
    base = str(saved(tiny_clip(), tmp_path / "base"))
    lines = ["en\tmi", *map("\t".join, zip(ROWS, MIRRORED, strict=True))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    file, pairs = str(tmp_path / "pairs.tsv"), list(zip(MIRRORED, ROWS, strict=True))
    found = []
    for name, sources in (("all", file), ("file", {"mi": file}), ("given", {"mi": pairs})):
        model = teach(base, sources, output=tmp_path / name, names=False)
        assert model.config.languages == ["mi"]
        embedder = Embedder.from_pretrained(str(tmp_path / name))
        found.append(embedder.encode_text(MIRRORED, language="mi"))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    with pytest.raises(CorpusError, match="'uk'"):
        teach(base, {"uk": file}, names=False)
    with pytest.raises(InputError, match="'mi'"):
        teach(str(tmp_path / "all"), {"mi": pairs}, names=False)
