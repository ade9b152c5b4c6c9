import pytest

from babelens.data.corpus.columns import check_columns
from babelens.data.emoji.build import Annotation
from babelens.data.emoji.names import EmojiNames, names_for, names_table
from babelens.utils.errors import CorpusError

ENGLISH = ["dog", "cat", "horse", "red apple", "boat", "house", "tree", "mountain", "child", "up arrow"]
POLISH = ["pies", "kot", "koń", "czerwone jabłko", "łódź", "dom", "drzewo", "góra", "dziecko", "strzałka w górę"]
DISTANT = ["e kotu iti", "te domo rahi", "kua moto", "maru kota", "mea poto", "te drzo"]
GREEK = ["σκύλος", "γάτα", "άλογο", "κόκκινο μήλο", "βάρκα", "σπίτι", "δέντρο", "βουνό", "παιδί", "βέλος"]


def named(texts):
    pictures = {f"{place:x}": Annotation(text, [text, f"{text}!"]) for place, text in enumerate(texts, 0x1F400)}
    return pictures | {sign: Annotation("sign", ["sign"]) for sign in ("2b", "25cf", "30-20e3")}


@pytest.fixture
def names():
    few = dict(list(named(POLISH).items())[:3])
    return EmojiNames(names_table({"en": named(ENGLISH), "pl": named(POLISH), "el": named(GREEK), "xx": few}))


def test_signs_and_languages_with_few_names_are_left_out(names):
    assert names.languages == ["en", "pl", "el"]
    (texts, natives), keywords = names.translations("pl", "en", 0.2).groups
    assert (texts, natives) == (POLISH[:-1], ENGLISH[:-1]) and len(keywords[0]) == len(texts)
    assert keywords[0][0] == "pies, pies!" and keywords[1][0] == "dog, dog!"


def test_the_language_is_found_by_its_sentences(names, caplog):
    texts = {"pl": POLISH, "szl": POLISH, "ty": DISTANT, "bn": ["একটি কুকুর", "একটি বিড়াল"]}
    found = {tag: (*each[:2], len(each.groups)) for tag, each in names_for(texts, "en", names).items()}
    assert found == {"pl": ("pl", 0.2, 2), "szl": ("pl", 0.2, 2), "ty": ("pl", 0.1, 1)}
    assert not caplog.records
    with pytest.raises(CorpusError, match="'el' look like pl"):
        names_for({"el": POLISH}, "en", names)


def test_without_names_in_the_native_language_there_are_none(names):
    assert names_for({"pl": POLISH}, "sw", names) == {}


ENGLISH_TEXTS = [
    "a dog is on the beach with the boy",
    "two women and the child at a table",
    "the man in an old boat",
] * 3
MAORI_TEXTS = [
    "he kurī kei te tāhuna me te tama",
    "tokorua ngā wāhine me te tamaiti",
    "te tangata i te waka tawhito",
] * 3
UKRAINIAN_TEXTS = ["собака на пляжі з хлопцем", "дві жінки та дитина за столом", "чоловік у старому човні"] * 3
GERMAN_TEXTS = ["der Hund ist mit dem Jungen auf dem Strand", "zwei Frauen und das Kind", "ein Mann in einem Boot"] * 3


@pytest.mark.parametrize("with_names", [False, True])
@pytest.mark.parametrize(
    ("language", "texts", "natives", "named"),
    [
        ("mi", ENGLISH_TEXTS, MAORI_TEXTS, "'en' and 'mi' seem to be swapped"),
        ("mi", ENGLISH_TEXTS, ENGLISH_TEXTS, "'en' and 'mi' hold the same texts"),
        ("mi", MAORI_TEXTS, GERMAN_TEXTS, "'en' looks like de"),
        ("mi", GERMAN_TEXTS, ENGLISH_TEXTS, "'mi' looks like de"),
        ("mi", MAORI_TEXTS, UKRAINIAN_TEXTS, "'en'.*script"),
        ("uk", GERMAN_TEXTS, ENGLISH_TEXTS, "'uk'.*script"),
    ],
)
def test_wrong_columns_are_an_error_that_names_them(with_names, language, texts, natives, named, monkeypatch):
    known = {"en": ENGLISH_TEXTS, "mi": MAORI_TEXTS, "uk": UKRAINIAN_TEXTS, "de": GERMAN_TEXTS}
    found = {
        tag: {f"{n:x}": Annotation(text, []) for n, text in enumerate(each, 0x1F400)} for tag, each in known.items()
    }
    profiles = EmojiNames(names_table(found)).profiles if with_names else None
    with pytest.raises(CorpusError, match=rf"pairs\.tsv: .*{named}"):
        check_columns({language: (texts, natives)}, "en", "pairs.tsv", profiles)
    right = {tag: (each, ENGLISH_TEXTS) for tag, each in known.items() if tag != "en"}
    check_columns(
        right | {"szl": (["pies na plaży", "dwie baby", "chop we czōłnie"] * 3, ENGLISH_TEXTS)}, "en", "x", profiles
    )
    check_columns({"de": (["rot", "blau"], ["red", "blue"])}, "en", "x", profiles)
