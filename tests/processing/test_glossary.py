from itertools import combinations, pairwise

import pytest

from babelens.processing.glossary import Glossary, is_word, segmented, words_of

MAORI = Glossary({"he": "a", "motokā": "car", "whero": "red", "te": "the", "tino": ""})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("L'homme au-dessus, 2 chiens!", ["l'homme", "au-dessus", "2", "chiens"]),
        ("एक लाल गाड़ी", ["एक", "लाल", "गाड़ी"]),  # with their vowel signs
        ("སྒོ་ཁྱི་", ["སྒོ", "ཁྱི"]),
        ("หมาสองตัว dog犬が", ["หมาสองตัว", "dog", "犬が"]),
        ("ＡＢ ﬁsh'", ["ab", "fish"]),
        (" — '' \n", []),
    ],
)
def test_words_are_letters_with_their_marks(text, words):
    assert words_of(text) == words


def test_a_word_is_cut_into_the_fewest_pieces():
    pieces = {"ab", "abc", "c", "cd", "de", "e", "bcde"}
    for word in ("abcde", "abcd", "xabxcd", "edcba", "xyz", "a"):
        ways = []
        for count in range(len(word)):
            for cuts in combinations(range(1, len(word)), count):
                ends = [0, *cuts, len(word)]
                parts = [word[start:end] for start, end in pairwise(ends)]
                if all(part in pieces or len(part) == 1 for part in parts):
                    known = [part for part in parts if part in pieces]
                    ways.append((8 * (len(parts) - len(known)) + len(known), known))
        found = segmented(word, pieces)
        unknown = len(word) - len("".join(found))
        assert 8 * unknown + len(found) == min(cost for cost, _ in ways)
        assert found in [known for cost, known in ways if cost == min(ways)[0]]


def test_words_are_translated_in_their_order():
    assert MAORI.gloss("He motokā WHERO") == "a car red"
    assert MAORI.gloss("te tino motokā") == "the car", "a word that says nothing is left out"
    assert MAORI.gloss("he he he motokā") == "a car", "said once"


def test_of_a_long_text_the_beginning_is_read():
    """Each unknown word is compared with all known ones: a text of a million would take minutes."""
    assert MAORI.glosses(f"he {'x ' * 1000}motokā {'xyzzy ' * 10**6}whero") == ["a", "car"]


def test_unknown_words():
    """Native words stay, inflected and misspelled ones are taken as the nearest, and others are left out."""
    assert MAORI.gloss("motokāhia red xyzzy") == "car red"
    assert MAORI.gloss("") == MAORI.gloss("qqq") == Glossary({}).gloss("motokā") == ""


def test_unknown_words_are_read_by_the_end_that_a_language_keeps():
    """German inflects words at their ends, and Zulu at their beginnings; older folders treat both ends alike."""
    german = {"stehen": "stand", "stehend": "stand", "besteht": "consists"}
    zulu = {"bacula": "sing", "ucula": "sing", "bayahamba": "walk", "uhambo": "journey"}
    assert [Glossary(german, new).gloss("steht") for new in (True, False)] == ["stand", "consists"]
    assert [Glossary(zulu, new).gloss("uhamba") for new in (True, False)] == ["walk", "journey"]


def test_scripts_without_spaces_are_read_in_pieces():
    thai = Glossary({"หมา": "dog", "สอง": "two", "ตัว": ""})
    assert thai.gloss("สองหมาตัว") == "two dog"
    assert thai.known(words_of("สองหมา!")) == 1.0 and thai.known(words_of("หมากข")) == 3 / 5


def test_words_that_texts_can_have():
    """Words, and pieces in scripts without spaces, can occur in texts; other lines would never be read."""
    for text in ("L'homme au-dessus, 2 chiens!", "एक लाल गाड़ी", "སྒོ་ཁྱི་", "he motokā ʻāina", "Straße ﬁsh"):
        assert all(map(is_word, words_of(text)))
    assert all(map(is_word, ("หมา", "ั", "-", "犬が")))
    for other in ("", " ", "fire engine", "(car)", "Car", "l'", "<b>", "犬dog", "หมา" * 5, "犬 が", "a\tb"):
        assert not is_word(other)
    assert MAORI.glosses("he motokā " * 30) == ["a", "car"] * 30 and len(MAORI.gloss("he motokā " * 30).split()) == 40
