import unicodedata

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from babelens.processing import tokenizer_training as training

CAPTIONS = {
    "en": ["a red car drives through the city", "two dogs don't run", "a dog (brown)"],
    "de": ["ein rotes Auto fährt durch die Stadt", "große Straße", "zwei Hunde"],
    "tr": ["kırmızı bir araba", "İki köpek ığdır'da"],
    "vi": ["một chiếc ô tô màu đỏ", "hai con chó"],
    "ru": ["красная машина едет по городу", "две собаки"],
    "ar": ["سيارة حمراء تسير في المدينة", "كلبان"],
    "he": ["מכונית אדומה", "שני כלבים"],
    "hi": ["लाल कार शहर में चलती है", "दो कुत्ते"],
    "th": ["รถสีแดงวิ่งผ่านเมือง", "สุนัขสองตัวกำลังวิ่งเล่น"],
    "km": ["រថយន្តពណ៌ក្រហម", "ឆ្កែពីរក្បាល"],
    "zh": ["一辆红色的汽车", "两只狗"],
    "ja": ["赤い車が街を走る", "二匹の犬"],
    "ko": ["빨간 자동차가 도시를 달린다", "개 두 마리"],
}
TEXTS = [text for texts in CAPTIONS.values() for text in texts]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return training.train_wordpiece(TEXTS, 800, min_frequency=1)


def spelled(text: str) -> str:
    """A text without its spaces, case and compatibility forms."""
    return "".join(unicodedata.normalize("NFKC", text).lower().split())


@pytest.mark.parametrize("language", list(CAPTIONS)[:3])
def test_every_language_can_be_read_back(tokenizer, language):
    texts = CAPTIONS[language]
    assert training.unknown_rate(tokenizer, texts) == 0
    for text, ids in zip(texts, tokenizer(texts)["input_ids"], strict=True):
        assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
        assert spelled(tokenizer.decode(ids, skip_special_tokens=True)) == spelled(text)


def test_unseen_characters_of_the_alphabet_are_spelled():
    queries = ["ďábel", "ψυχή", "ძაღლი", "ꦄꦏ", "犬馬"]
    assert training.unknown_rate(training.train_wordpiece(TEXTS, 800, min_frequency=1), queries) > 50
    known = training.train_wordpiece(TEXTS, 900, alphabet=queries, min_frequency=1)
    assert training.unknown_rate(known, queries) == 0
    for query in queries:
        for text in (query, query[::-1], query * 2):  # at the start of a word and inside one
            assert known.unk_token_id not in known(text)["input_ids"]


def test_without_a_prefix_a_piece_is_the_same_wherever_it_stands(tmp_path):
    texts = ["kuchen", "apfel"] * 3
    trained = training.train_wordpiece(texts, 100, continuing_subword_prefix="", alphabet=TEXTS[:5])
    trained.save_pretrained(tmp_path)
    for tokenizer in (trained, AutoTokenizer.from_pretrained(tmp_path)):
        assert tokenizer.tokenize("apfelkuchen") == ["apfel", "kuchen"]
        assert tokenizer("apfelkuchen")["input_ids"] == tokenizer("apfel kuchen")["input_ids"]
        assert training.unknown_rate(tokenizer, TEXTS[:5]) == 0
        for text in TEXTS[:5]:
            assert spelled(tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)) == spelled(text)
    marked = training.train_wordpiece(texts, 100, alphabet=TEXTS[:5])
    assert "##kuchen" not in marked.get_vocab() and len(marked.tokenize("apfelkuchen")) > 2


def test_training_is_repeatable_and_takes_a_generator(tokenizer):
    for texts in (TEXTS, iter(TEXTS)):
        again = training.train_wordpiece(texts, 800, min_frequency=1, alphabet=iter([]))
        assert again.get_vocab() == tokenizer.get_vocab()
        assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_saved_it_is_an_ordinary_tokenizer(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert dict(loaded(TEXTS, TEXTS[::-1], padding=True)) == dict(tokenizer(TEXTS, TEXTS[::-1], padding=True))
    assert loaded.model_max_length == 64
    assert set(loaded("ein Auto")) == {"input_ids", "attention_mask"}
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    assert [getattr(loaded, name) for name in names] == training.SPECIAL_TOKENS
    long = loaded("rotes Auto " * 100, truncation=True)["input_ids"]
    assert len(long) == 64 and long[-1] == loaded.sep_token_id


def test_what_was_never_seen_is_spelled_in_bytes():
    bpe = training.train_bpe(TEXTS, 700, min_frequency=1)
    for text in ("ძაღლი", "ꦄꦏ", "☃ and 🦊", "a\tb  c\n", "“quoted” — ½ kg…"):
        ids = bpe(text)["input_ids"]
        assert bpe.unk_token_id not in ids
        assert bpe.decode(ids, skip_special_tokens=True) == " ".join(text.split())
    assert bpe.decode([], skip_special_tokens=True) == ""


def test_a_byte_pair_encoding_has_the_size_asked_for():
    trained = training.train_bpe(TEXTS, 600, min_frequency=1)
    assert len(trained) == trained.vocab_size == 600
    assert [trained.convert_tokens_to_ids(token) for token in training.BPE_SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    needed = len(training.train_bpe(TEXTS, 10_000, min_frequency=10_000))
    with pytest.raises(ValueError, match=f"vocab_size={needed - 1} is too small: .* alone need {needed} pieces"):
        training.train_bpe(TEXTS, needed - 1)
