import json
import random
import unicodedata
from pathlib import Path

import pytest
import torch

from babelens.inference.embedder import Embedder
from babelens.processing.glossary import Glossary
from babelens.processing.processing_mla import MlaStudentProcessor
from babelens.processing.processing_ridge import GLOSSARY_FILE, RidgeProcessor
from babelens.processing.text_normalization import folded, same_letters, spelling_of
from babelens.utils.errors import ModelFolderError
from tests.support.made_once import draw_maps


def read_variants():
    for line in (Path(__file__).with_name("spelling_variants.txt")).read_text("utf-8").splitlines():
        if not line.startswith("#"):
            head, *spellings = (part.strip(" ") for part in line.split(" | "))
            kind, language = head.split()
            escaped = [each.encode("ascii", "backslashreplace").decode("unicode_escape") for each in spellings]
            yield kind, language, escaped


VARIANTS = list(read_variants())


@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in VARIANTS}))
def test_spellings_of_one_text_are_one(kind):
    for _, language, texts in (each for each in VARIANTS if each[0] == kind):
        assert len({" ".join(folded(text, language).split()) for text in texts}) == 1, texts
        assert len(set(texts)) > 1
        if kind == "=":
            assert len({" ".join(same_letters(text, language).split()) for text in texts}) == 1, texts
        for text in texts:
            once = folded(text, language)
            capitals = (once.replace("i", "İ") if language in ("tr", "az") else once).upper()
            assert folded(once, language) == once and folded(capitals, language) == once, text
            for form in ("NFC", "NFD"):
                assert folded(unicodedata.normalize(form, text), language) == once, text
            same = same_letters(text, language)
            assert same_letters(same, language) == same, text


APART = [
    ("tr", "kır", "kir"),
    ("uk", "гриб", "ґриб"),
    ("mn", "ёс", "ес"),
    ("be", "ён", "ен"),
    ("ur", "ہے", "ہی"),
    ("ur", "پہل", "پھل"),
    ("ug", "ئى", "ي"),
    ("ckb", "ئەو", "یەو"),
    ("sd", "ڪار", "کار"),
    ("ps", "سړی", "سړي"),
    ("ml", "അവൻ", "അവന്"),
    ("hi", "बड़ा", "बडा"),
    ("da", "æble", "aeble"),
    ("is", "með", "međ"),
    ("ti", "ሓመድ", "ሃመድ"),
    ("vi", "của", "cua"),
    ("de", "Bär", "Bar"),
    ("es", "año", "ano"),
    ("ja", "ハ", "パ"),
    ("ro", "țară", "tară"),
    ("th", "ที่", "ที"),
    ("to", "ʻa", "a"),
    ("el", "παιδί", "παδί"),
]


def test_texts_of_another_meaning_stay_apart():
    for language, one, other in APART:
        assert folded(one, language) != folded(other, language), one
        assert same_letters(one, language) != same_letters(other, language), one


def test_no_letter_is_lost():
    """Only hamza, which writers leave out, the stretched line of Arabic, and letters that are not seen."""
    letters = [chr(code) for code in range(0x80, 0x3100) if unicodedata.category(chr(code))[0] == "L"]
    lost = {letter for letter in letters for near in "aαаא" if len(folded(near + letter + near, "und")) < 3}
    assert lost == {*"ءـۥۦ", "\u115f", "\u1160"}


@pytest.mark.parametrize("language", ["und", "uk-UA"])
def test_any_text_in_any_language_is_read(language):
    random.seed(0)
    for _ in range(300):
        text = "".join(chr(random.choice([random.randrange(0x3000), random.randrange(0xD800)])) for _ in range(20))
        assert folded(folded(text, language), language) == folded(text, language)
    assert spelling_of(language) == ("und" if language == "und" else "")


def test_a_model_embeds_all_spellings_to_the_same_bits(make_ridge):
    model, processor = make_ridge(glossaries=True)
    tags = list(dict.fromkeys(language for _, language, _ in VARIANTS if language != "en"))
    model.maps.add(len(tags))
    model.maps.importance[-len(tags) :] = 1
    draw_maps(model)
    model.config.languages = processor.languages = [*model.config.languages, *tags]
    model.config.gloss_weights = [0.5] * (1 + len(processor.languages))
    embedder = Embedder(model, processor)
    for _, language, texts in VARIANTS:
        if language in processor.languages:
            found = embedder.encode_text(texts, language=language)
            assert (found == found[0]).all(), language


def test_glossaries_are_corrected_in_any_spelling(make_ridge, tmp_path):
    _, processor = make_ridge(glossaries=True)
    processor.languages = [*processor.languages, "uk"]
    processor.glossaries["uk"] = Glossary({folded("м'яч", "uk"): "ball"})
    processor.save_pretrained(tmp_path)
    file = tmp_path / GLOSSARY_FILE
    file.write_text(file.read_text("utf-8") + "uk\tм\u2019яч\tball\nuk\tСІМ\u02bcЯ\tfamily\n", "utf-8")
    loaded = RidgeProcessor.from_pretrained(tmp_path)
    read = [loaded(text=text, language="uk")["gloss_ids"] for text in ("м\u2019яч сім'я", "М'ЯЧ\u00ad СІМ`Я")]
    assert read[0] == read[1] and any(read[0][0])
    assert loaded.glossaries["uk"].entries == {"м'яч": "ball", "сім'я": "family"}
    file.write_text(file.read_text("utf-8") + "uk\tм`яч\tdog\n", "utf-8")
    with pytest.raises(ModelFolderError, match="м'яч"):
        RidgeProcessor.from_pretrained(tmp_path)


def test_folders_that_state_no_normalization_read_texts_as_before(make_ridge, tmp_path):
    _, processor = make_ridge(encoder=True, glossaries=True)
    spellings = ["m\u2019a Ein", "m'a Ein", "m\u00ad\u02bca Ein"]
    read = processor(text=spellings, language="de")["input_ids"]
    assert read[0] == read[1] == read[2]
    assert processor(text=spellings, language="en")["input_ids"] == processor.native(text=spellings)["input_ids"]
    processor.save_pretrained(tmp_path)
    settings = tmp_path / "processor_config.json"
    stated = json.loads(settings.read_text("utf-8"))
    assert stated.pop("normalization") == 1 and stated.pop("by_inflection")
    settings.write_text(json.dumps(stated), "utf-8")
    old = RidgeProcessor.from_pretrained(tmp_path)
    text = "Ein Straße\u00ad m\u2019a ѐ"
    inputs = old(text=text, language="de", return_tensors="pt")
    as_before = f" {' '.join(unicodedata.normalize('NFKC', text).lower().split())} "
    assert inputs["character_ids"].equal(torch.tensor([list(map(ord, as_before))]))
    assert inputs["input_ids"][0].tolist() == old.encoder_tokenizer(text)["input_ids"]
    old.save_pretrained(tmp_path / "again")
    again = vars(RidgeProcessor.from_pretrained(tmp_path / "again"))
    assert not again["normalization"] and not again["by_inflection"]
    with pytest.raises(ModelFolderError, match="7"):
        RidgeProcessor(old.image_processor, old.tokenizer, normalization=7)


def test_students_read_letters_alike(make_mla_student, tmp_path):
    _, made = make_mla_student(native_texts="native")
    parts = made.image_processor, made.tokenizer, made.native_tokenizer
    processor = MlaStudentProcessor(*parts, native_texts="native", normalization=1)
    spellings = ["m\u2019a E\ufe0fin", "m'a Ein", "m\u00ad\u02bca Ein"]
    read = processor(text=spellings, language="de")["input_ids"]
    assert read[0] == read[1] == read[2]
    processor.save_pretrained(tmp_path)
    loaded = MlaStudentProcessor.from_pretrained(tmp_path)
    assert loaded.normalization == 1 and loaded(text=spellings, language="de")["input_ids"] == read
    as_they_are = made(text=spellings, language="de")["input_ids"]
    assert made.normalization == 0 and as_they_are[0] != as_they_are[1]
    texts = ["m\u2019a", "m'a"]
    assert processor(text=texts, language="en")["input_ids"] == made(text=texts, language="en")["input_ids"]
