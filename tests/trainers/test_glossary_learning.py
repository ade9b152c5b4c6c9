import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from babelens.processing.glossary import Glossary
from babelens.trainers.glossary_learning import glossary_from, glossary_of_words, known_words, learn_glossary, senses

COLORS = {"red": "whero", "green": "kākāriki", "blue": "kahurangi", "black": "pango", "white": "mā"}
THINGS = {"car": "motokā", "dog": "kurī", "cat": "ngeru", "tree": "rākau", "house": "whare", "boat": "poti"}
PAIRS = [(f"he {THINGS[thing]} {COLORS[color]}", f"a {color} {thing}") for color in COLORS for thing in THINGS]


def test_words_in_another_order_are_found():
    expected = {"he": "a"} | {word: native for native, word in (COLORS | THINGS).items()}
    assert learn_glossary(PAIRS) == expected


def test_a_script_without_spaces_is_cut_into_words():
    colors = dict(zip(COLORS, ("แดง", "เขียว", "น้ำเงิน", "ดำ", "ขาว"), strict=True))
    things = dict(zip(THINGS, ("รถ", "หมา", "แมว", "ต้นไม้", "บ้าน", "เรือ"), strict=True))
    pairs = [(f"{things[thing]}สี{colors[color]}", f"{color} {thing}") for color in COLORS for thing in THINGS]
    held_out, learned = pairs[::7], [pair for row, pair in enumerate(pairs) if row % 7]
    glossary = Glossary(learn_glossary(learned))
    right = [set(native.split()) <= set(glossary.gloss(text).split()) for text, native in held_out]
    assert sum(right) >= 4, [glossary.gloss(text) for text, _ in held_out]


def test_thousands_of_characters_are_no_obstacle():
    texts = [chr(0x4E00 + 2 * row) + chr(0x4E01 + 2 * row) for row in range(1500)]
    glossary = Glossary(learn_glossary([(text, f"w{row}") for row, text in enumerate(texts)]))
    assert sum(glossary.gloss(text) == f"w{row}" for row, text in enumerate(texts)) > 1400


def test_equals_a_plain_expectation_maximization():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in rng.integers(0, 12, rng.integers(1, 7))) for _ in range(60)]
    natives = [" ".join(f"n{word}" for word in rng.integers(0, 9, rng.integers(1, 6))) for _ in range(60)]
    for named in (0, 20):  # the last are names, whose words have no places
        pairs = list(zip(texts, natives, strict=True))
        places = [2.0] * (60 - named) + [0.0] * named
        expected = plain_alignment([text.split() for text in texts], [native.split() for native in natives], places)
        assert learn_glossary(pairs[: 60 - named], pairs[60 - named :]) == expected


def plain_alignment(sentences, translations, places):
    table = {(word, native): 1.0 for sentence, translation in zip(sentences, translations, strict=True)
             for word in ("", *sentence) for native in translation}  # fmt: skip
    for _ in range(8):
        counts = dict.fromkeys(table, 0.0)
        for sentence, translation, place in zip(sentences, translations, places, strict=True):
            for at, native in enumerate(translation):
                near = [np.exp(-place * abs((i + 1) / len(sentence) - (at + 1) / len(translation)))
                        for i in range(len(sentence))]  # fmt: skip
                prior = [0.15, *(0.85 * each / sum(near) for each in near)]
                found = [p * table[word, native] for p, word in zip(prior, ("", *sentence), strict=True)]
                for word, share in zip(("", *sentence), found, strict=True):
                    counts[word, native] += share / sum(found)
        totals: dict[str, float] = {}
        for (word, _), count in counts.items():
            totals[word] = totals.get(word, 0.0) + count
        table = {key: count / (totals[key[0]] + 0.3) for key, count in counts.items()}
    best = {}
    for (word, native), share in table.items():
        if word and share > best.get(word, (0.12, ""))[0]:
            best[word] = share, native
    return {word: best.get(word, (0.0, ""))[1] for sentence in sentences for word in sentence}


DICTIONARY = (
    ["Hund", "Hund", "putzen", "Leiter", "Leiter", "Fußballplatz", "Guten Tag", "so", "oh!", "見る"],
    ["mine car", "dog", "to clean", "manager", "ladder", "football field", "hello", "in such a way", "oh", "see"],
)


def test_of_several_translations_the_one_that_texts_say_is_taken():
    found = senses(DICTIONARY, ["a dog on a ladder", "a dog in a field", "a red car"])
    assert found["hund"] == "dog" and found["leiter"] == "ladder", "the first, the rarest of its words counts"
    assert found["fußballplatz"] == "football field" and found["見る"] == "see"
    assert not {"guten tag", "so", "oh!"} & found.keys(), "several words, an explanation, and no word"
    assert senses(DICTIONARY, [])["leiter"] == "manager", "the first, where texts say nothing"


def test_of_several_translations_the_one_in_names_is_taken():
    """Unless few of the names with the word have it: every other translation has a word such as "of"."""
    words = ["Leiter", "Leiter", "mit", "mit", "Bank", "Bank"], ["manager", "ladder", "with", "of", "bank", "bench"]
    names = [("Mann mit Leiter", "man with ladder"), ("Leiter", "ladder")]
    found = {"leiter": "ladder", "mit": "with", "bank": "bank"}
    assert senses(words, [], names=names) == found
    few = [("Frau mit Bank", native) for native in ["bench"] + ["woman"] * 5]
    assert senses(words, [], names=names + few) == found
    assert senses(words, ["the manager"], names=names)["leiter"] == "manager", "native texts come first"
    assert senses((["spielt", "spielt", "spielen"], ["pretends", "plays", "play"]), [])["spielt"] == "plays"


def test_a_translation_that_the_base_cannot_read_is_the_last():
    words = Tokenizer(WordLevel({"?": 0, "dog": 1, "hound": 2}, unk_token="?"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
    assert senses((["Hund"] * 3, ["dɒɡ", "hound", "dog"]), [], tokenizer) == {"hund": "dog"}
    assert senses((["v", "v", "k"], ["v", "in", "k"]), []) == {"v": "in"}, "a letter does not translate itself"


def test_a_cell_holds_several_translations():
    words = ["Hund", "Haus, das", "laufen", "Bank", "Auto"]
    natives = ["hound; dog", "house, home, building, residence", "1. to run 2. walk", "bench / bank", "car|automobile"]
    expected = {"hund": "hound", "haus": "house", "laufen": "to run", "bank": "bench", "auto": "car"}
    assert senses((words, natives), []) == expected
    assert senses((words, natives), ["a dog at home on the bank"])["hund"] == "dog"


def test_the_first_word_of_very_many_translations_is_left_out():
    words = [chr(ord("a") + row) * 3 for row in range(26)]
    natives = [f"to {word[:2]}" for word in words[:12]] + words[12:-2] + ["to", "two words"]
    expected = [word[:2] for word in words[:12]] + natives[12:]
    assert senses((words, natives), []) == dict(zip(words, expected, strict=True))
    assert senses((words[:5], natives[:5]), [])["aaa"] == "to aa"


def test_words_are_found_in_any_spelling_of_a_dictionary():
    """With combining accents, as some files have them, and notes in brackets."""
    words = ["e\u0301cole", "Hund {m}", "(der) Baum", "Haus [ugs.]", "HUND", "ｖｅ́ｌｏ"]
    natives = ["school", "dog (animal)", "tree", "house", "hound", "bike"]
    expected = {"école": "school", "hund": "dog", "baum": "tree", "haus": "house", "vélo": "bike"}
    assert senses((words, natives), []) == expected
    assert Glossary(expected).gloss("une e\u0301cole") == "school", "as texts are read"


def test_entries_of_a_dictionary_that_are_no_words_are_reported(caplog):
    caplog.set_level("WARNING", logger="babelens.trainers.glossary_learning")
    words = ["der Hund", "die Katze", "Baum"], ["dog", "cat", "tree"]
    assert known_words("de", words, ["a dog", "a cat", "a tree"]) == {"baum": "tree"}
    assert "de: 3 entries in the dictionary, 1 of them one word" in caplog.text
    assert "such as 'der Hund' for 'dog'" in caplog.text
    caplog.clear()
    assert not known_words("de", (words[0][:2], words[1][:2]), ["a dog"])
    assert "2 entries in the dictionary, 0 of them" in caplog.text and "check its columns" not in caplog.text
    caplog.clear()
    assert known_words("de", (["Hund", "HUND", "hund"], ["dog"] * 3), ["a dog"]) == {"hund": "dog"}
    assert known_words("de", DICTIONARY, ["a dog", "a ladder", "to clean", "a football field", "see"])
    natives = [native for _, native in PAIRS]
    assert known_words("de", (["ROT", "GRÜN"], ["red", "green"]), natives)
    assert not caplog.text
    assert known_words("de", (["red", "green"], ["rot", "grün"]), natives)
    assert "only 0 occur in the native texts: check its columns" in caplog.text


def test_a_dictionary_tells_what_sentences_do_not():
    """Even for words in the sentences, unless these show another translation."""
    known = {"manu": "bird", "kurī": "dog hound", "whare": "barn", "pai": "very good"}
    found = glossary_from(PAIRS, [], known)
    assert found["manu"] == "bird" and found["pai"] == "very good"
    assert found["kurī"] == "dog hound", "the sentences agree with one of its words"
    assert found["whare"] == "house", "five sentences show this"
    assert {word: found[word] for word in ("he", "whero", "poti")} == {"he": "a", "whero": "red", "poti": "boat"}
    names = [("auf der Leiter", "the ladder"), ("auf der Wiese", "the meadow")]
    assert glossary_from([], names, {"auf": "on"})["auf"] == "on"


def test_a_dictionary_alone_takes_only_clear_translations_from_names():
    """A form that the dictionary lacks is otherwise read as the entry spelled most alike."""
    names = [("blauen Vogel", "egg in nest with bird"), ("Ei", "egg"), ("Katze", "cat")]
    found = glossary_of_words(names, {"blau": "blue", "vogel": "bird"})
    assert found == {"blau": "blue", "vogel": "bird", "ei": "egg", "katze": "cat"}
    assert Glossary(found).gloss("blauen Katze") == "blue cat"
    joined = [("青い猫", "blue cat"), ("青い鳥", "blue bird"), ("青い犬", "blue dog")]
    assert glossary_of_words(joined, {"猫": "cat"}) == glossary_from([], joined, {"猫": "cat"}), "pieces of words"
