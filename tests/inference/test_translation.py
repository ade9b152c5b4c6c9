import json
import logging

import numpy as np
import pytest
import torch
import transformers
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from babelens.inference import (
    CachedTranslator,
    Seq2SeqTranslator,
    TranslatingEmbedder,
    TranslatorsByPair,
    translated_captions,
)
from babelens.utils.errors import LanguageTagError
from tests.contracts import TEXTS
from tests.support.retrieval_fixtures import ColorEmbedder, WordTranslator
from tests.support.translation_models import save, save_nllb

WORDS = ["a", "red", "car", "ein", "rotes", "auto", "translate", "English", "to", "German:"]


def words_tokenizer(*more: str) -> transformers.PreTrainedTokenizerFast:
    vocabulary = ["<pad>", "</s>", "<unk>", *WORDS, *more]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", model_max_length=30
    )


def t5(tokenizer, **settings) -> transformers.T5ForConditionalGeneration:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "initializer_factor": 5.0}
    config = transformers.T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0, **sizes, **settings)
    return transformers.T5ForConditionalGeneration(config).eval()


def asked(model, tokenizer, text: str, **options) -> str:
    inputs = tokenizer(text, return_tensors="pt")
    read = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    return tokenizer.decode(model.generate(**read, **options)[0], skip_special_tokens=True)


def by_hand(folder, text, source, target):
    model, tokenizer = (
        transformers.AutoModelForSeq2SeqLM.from_pretrained(folder),
        transformers.AutoTokenizer.from_pretrained(folder),
    )
    tokenizer.src_lang = source
    return asked(model, tokenizer, text, forced_bos_token_id=tokenizer.convert_tokens_to_ids(target))


def test_translations_of_nllb_are_those_of_transformers(tmp_path):
    folder = save_nllb(tmp_path)
    texts = ["a thing 7", "abc", "the face of another thing 90", "b"]
    translator = Seq2SeqTranslator.from_pretrained(folder, batch_size=3)
    codes = {"de": "deu_Latn", "ko": "kor_Hang", "zh": "zho_Hans", "zh-Hant": "zho_Hant", "ar": "arb_Arab"}
    found = {tag: translator.translate(texts, "en", tag) for tag in codes}
    for tag, code in codes.items():
        assert all(found[tag]) and found[tag] == [by_hand(folder, text, "eng_Latn", code) for text in texts]
    assert len({tuple(each) for each in found.values()}) > 1  # the target matters
    assert translator.translate(texts[:1], "DE", "zh_hans") == [by_hand(folder, texts[0], "deu_Latn", "zho_Hans")]


def test_madlad_reads_a_token_of_the_target_before_the_text():
    tokenizer = words_tokenizer("<2de>", "<2zh>", "<2translate>")
    model = t5(tokenizer)
    model.generation_config.max_new_tokens = 9
    translator = Seq2SeqTranslator(model, tokenizer)
    found = translator.translate(["a red car", "a"], "en", "de")
    assert found == [asked(model, tokenizer, "<2de> a red car"), asked(model, tokenizer, "<2de> a")]
    assert translator.translate(["a red car"], "fr", "zh-CN") == [asked(model, tokenizer, "<2zh> a red car")]
    with pytest.raises(LanguageTagError, match="no token for 'zh-Hant'"):
        translator.translate(["a"], "en", "zh-Hant")


@pytest.mark.parametrize(
    ("source", "target", "tokens", "asked_for", "prefix"),
    [
        ("en", "de", (), ("en", "de"), ""),
        ("eng", "deu", (), ("en-GB", "de"), ""),
        ("en", "ROMANCE", (">>fra<<", ">>por<<"), ("en", "pt-BR"), ">>por<< "),
        ("en", "zh", (">>cmn_Hans<<", ">>cmn_Hant<<"), ("en", "zh-TW"), ">>cmn_Hant<< "),
        ("mul", "en", (), ("sw", "en"), ""),
    ],
)
def test_marian_states_its_languages(source, target, tokens, asked_for, prefix):
    tokenizer = words_tokenizer(*tokens)
    tokenizer.source_lang, tokenizer.target_lang = source, target
    translator = Seq2SeqTranslator(torch.nn.Identity(), tokenizer)
    assert translator._request(*asked_for) == (prefix, None, {})
    with pytest.raises(LanguageTagError):
        translator._request(asked_for[0], "ja")
    if source != "mul":
        with pytest.raises(LanguageTagError, match="this model translates en"):
            translator._request("ja", asked_for[1])


def test_marian_and_m2m100_as_they_are_published(tmp_path):
    """Their tokenizers' files, made by sentencepiece."""
    sentencepiece = pytest.importorskip("sentencepiece")
    from transformers import M2M100Config, M2M100ForConditionalGeneration, M2M100Tokenizer, MarianTokenizer

    (tmp_path / "texts").write_text("\n".join(TEXTS * 20), "utf-8")
    options = {"vocab_size": 60, "character_coverage": 1.0, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "texts"), model_prefix=str(tmp_path / "spm"), model_type="char", **options
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    names = ["</s>", "<unk>", *(pieces.id_to_piece(i) for i in range(3, len(pieces))), ">>deu<<", "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}), "utf-8")
    spm = str(tmp_path / "spm.model")
    marian = MarianTokenizer(spm, spm, str(tmp_path / "vocab.json"), source_lang="en", target_lang="gmw")
    save(transformers.MarianMTModel, transformers.MarianConfig, marian, tmp_path / "marian")
    translator = Seq2SeqTranslator.from_pretrained(tmp_path / "marian", device="cpu")
    found = translator.translate(["a red car", "red"], "en", "de")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "marian")
    assert found == [asked(translator.model, tokenizer, f">>deu<< {text}") for text in ("a red car", "red")]
    assert any(found) and translator.fingerprint() == translator.fingerprint()

    names = ["<s>", "<pad>", "</s>", "<unk>", *names[2:-2]]
    (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}), "utf-8")
    m2m = M2M100Tokenizer(str(tmp_path / "vocab.json"), spm, num_madeup_words=0)
    save(M2M100ForConditionalGeneration, M2M100Config, m2m, tmp_path / "m2m", more_tokens=len(m2m.lang_code_to_id))
    translator = Seq2SeqTranslator.from_pretrained(tmp_path / "m2m", device="cpu")
    found = translator.translate(["red"], "en", "sw")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m2m", src_lang="en")
    assert found == [asked(translator.model, tokenizer, "red", forced_bos_token_id=tokenizer.get_lang_id("sw"))]


def test_translations_that_do_not_end_are_counted(caplog):
    tokenizer = words_tokenizer()
    translator = Seq2SeqTranslator(t5(tokenizer), tokenizer, pair=("en", "de"))
    model = translator.model
    model.generation_config.max_length = model.generation_config.max_new_tokens = None
    with torch.no_grad():  # it never ends
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        model.lm_head.weight[:2] = 0
    lengths = [len(tokenizer(text)["input_ids"]) for text in translator.translate(["a red car", "a"], "en", "de")]
    assert max(lengths) == 2 * 3 + 20  # not transformers' 20
    assert "2 of 2 translations from en to de were cut at the greatest length" in caplog.text


@pytest.fixture
def translator():
    return WordTranslator({"en": "thing", "de": "ding", "fr": "chose"})


def test_each_text_is_translated_once(translator, tmp_path):
    cached = CachedTranslator(translator, key="words", folder=tmp_path)
    texts = ["thing 1", "thing 2", "thing 1"]
    assert cached.translate(texts, "EN", "de") == ["ding 1", "ding 2", "ding 1"]
    assert cached.translate(["thing 2", "thing 3"], "en", "de") == ["ding 2", "ding 3"]
    assert cached.translate(["thing 1"], "en", "fr") == ["chose 1"]
    assert cached.translate([], "en", "fr") == []
    assert translator.asked == [("en", "de", 2), ("en", "de", 1), ("en", "fr", 1)]
    again = CachedTranslator(translator, key="words", folder=tmp_path)
    assert again.translate(texts, "en", "de") == ["ding 1", "ding 2", "ding 1"] and len(translator.asked) == 3
    other = CachedTranslator(translator, key="others", folder=tmp_path)
    assert other.translate(["thing 1"], "en", "de") == ["ding 1"] and len(translator.asked) == 4


def test_what_was_translated_before_an_error_is_kept(translator, tmp_path, monkeypatch):
    monkeypatch.setattr("babelens.inference.translation._BLOCK", 2)
    texts = [f"thing {number}" for number in range(5)]

    class Breaking:
        def translate(self, block, source, target):
            if len(translator.asked) == 2:
                raise KeyboardInterrupt
            return translator.translate(block, source, target)

    with pytest.raises(KeyboardInterrupt):
        CachedTranslator(Breaking(), key="words", folder=tmp_path).translate(texts, "en", "de")
    cached = CachedTranslator(translator, key="words", folder=tmp_path)
    assert cached.translate(texts, "en", "de") == [f"ding {number}" for number in range(5)]
    assert [count for *_, count in translator.asked] == [2, 2, 1]


def test_other_weights_or_settings_have_another_file(tmp_path):
    folder = save_nllb(tmp_path / "nllb")
    translator = Seq2SeqTranslator.from_pretrained(folder, device="cpu")
    name = translator.fingerprint()
    cached = CachedTranslator(translator, folder=tmp_path)
    assert cached.translate(["a thing"], "en", "de") == translator.translate(["a thing"], "en", "de")
    assert cached.file == tmp_path / f"{name}.sqlite" and cached.file.is_file()
    assert translator.fingerprint() == name == Seq2SeqTranslator.from_pretrained(folder, device="cpu").fingerprint()
    translator.model.generation_config.num_beams = 3
    beams = translator.fingerprint()
    with torch.no_grad():
        translator.model.get_input_embeddings().weight[5] += 1
    assert len({name, beams, translator.fingerprint()}) == 3


def captions_in(corpus: Dataset, language: str) -> list[list[str]]:
    return [[c["text"] for c in row if c["language"] == language] for row in corpus["captions"]]


def test_captions_of_people_stay_and_others_are_added(caption_corpus, translator):
    found = translated_captions(caption_corpus, translator, source="EN", targets=["fr", "de"])
    assert found.column_names == caption_corpus.column_names and found.features == caption_corpus.features
    english = captions_in(caption_corpus, "en")
    assert captions_in(found, "en") == english and captions_in(found, "de") == captions_in(caption_corpus, "de")
    assert captions_in(found, "fr") == [[text.replace("thing", "chose") for text in row] for row in english]
    assert translator.asked == [("en", "fr", 10)]  # each text once, and nothing into German
    assert list(found["image_id"]) == list(caption_corpus["image_id"])
    assert np.array_equal(np.asarray(found[7]["image"]), np.asarray(caption_corpus[7]["image"]))


class Silent:
    def translate(self, texts, source, target):
        return ["" if text.endswith(" 1") else f"{target} {text}" for text in texts]


def test_a_row_that_was_translated_to_nothing_gets_no_captions(caplog):
    rows = [{"captions": [{"language": "en", "text": f"thing {n}"} for n in numbers]} for numbers in ((0, 1), (2,))]
    found = translated_captions(Dataset.from_list(rows), Silent(), source="en", targets=["de"])
    assert captions_in(found, "de") == [[], ["de thing 2"]]
    assert "1 of 3 texts were translated from en to nothing in de, such as 'thing 1'" in caplog.text


def test_texts_are_encoded_by_their_translations(translator, tmp_path, caplog):
    embedder = ColorEmbedder()
    cached = CachedTranslator(translator, key="words", folder=tmp_path)
    translating = TranslatingEmbedder(embedder, cached)
    found = translating.encode_text(["ding 1", "thing 2", "chose 3"], language=["de", "en", "fr"])
    assert embedder.texts == [("thing 1", "en"), ("thing 2", "en"), ("thing 3", "en")]
    assert np.array_equal(found, embedder.encode_text(["thing 1", "thing 2", "thing 3"], language="en"))
    assert translating.n_empty == 0
    again = TranslatingEmbedder(embedder, TranslatorsByPair({("de", "en"): cached}))
    again.encode_text("ding 1", language="de")
    with pytest.raises(LanguageTagError, match="no translator from fr to en"):
        again.encode_text("chose 1", language="fr")
    silent = TranslatingEmbedder(embedder, Silent(), to="en")
    with caplog.at_level(logging.WARNING):
        silent.encode_text(["ding 1"], language="de")
    assert embedder.texts[-1] == ("ding 1", "en") and silent.n_empty == 1
    assert "1 of 1 texts were translated from de to nothing in en, such as 'ding 1'" in caplog.text
