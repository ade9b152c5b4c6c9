"""Trains multilingual vocabularies on captions: WordPiece (MURAL, section 3.2), and byte-pair encoding for models that
also write. WordPiece turns a word that it cannot spell into one [UNK]; so every character of the captions and of
`alphabet` is a piece, at the start of a word and inside one, and overlong words are split."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AddedToken, PreTrainedTokenizerFast

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Special tokens of byte-pair encodings, with mBART's names and ids, except that mBART's mask is the last token.
BPE_SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
WORDPIECE_PREFIX = "##"  # BERT's mark of pieces inside of words
_LONGEST_WORD = 100  # characters; WordPiece turns longer words into [UNK]


def train_wordpiece(
    texts: Iterable[str],
    vocab_size: int,
    *,
    alphabet: Iterable[str] = (),
    lowercase: bool = True,
    min_frequency: int = 2,
    continuing_subword_prefix: str = WORDPIECE_PREFIX,
    max_tokens: int = 64,
) -> PreTrainedTokenizerFast:
    """Trains a WordPiece tokenizer: `[CLS] pieces [SEP]`, Unicode NFKC, Han characters as single words.

    Args:
        vocab_size: number of pieces, including special tokens and alphabet.
        alphabet: texts whose characters become pieces even if `texts` do not contain them.
        lowercase: whether to fold case. Queries rarely have the case of captions.
        continuing_subword_prefix: mark of pieces inside words. With "", a piece is the same in any position, such as
            `cake` in `cake` and in `pancake`; decoded texts then have spaces between all pieces.

    Examples:
        >>> tokenizer = train_wordpiece(captions, vocab_size=8000, alphabet=["äöüß"])
    """
    tokenizer = Tokenizer(models.WordPiece())
    clean = normalizers.BertNormalizer(strip_accents=False, lowercase=lowercase)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), clean])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.FixedLength(length=_LONGEST_WORD)]
    )
    words, prefix = _count_words(tokenizer, texts), continuing_subword_prefix
    pieces = set()
    for character in set().union(*words, *map(tokenizer.normalizer.normalize_str, alphabet)):
        # A doubled character occurs at the start of a word and inside one, unless it always forms a separate word.
        for word in _words(tokenizer, character * 2):
            pieces |= {word[0], *(prefix + inside for inside in word[1:])}
    model, first = models.WordPiece(continuing_subword_prefix=prefix), [*SPECIAL_TOKENS, *sorted(pieces)]
    options = {"min_frequency": min_frequency, "continuing_subword_prefix": prefix}
    learned = _learn(model, trainers.WordPieceTrainer, words, first, vocab_size, **options)
    longest = {"max_input_chars_per_word": _LONGEST_WORD, "continuing_subword_prefix": prefix}
    tokenizer.model = models.WordPiece(learned.get_vocab(), unk_token="[UNK]", **longest)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    template = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
    return _fast(tokenizer, template, max_tokens, pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")


def _words(tokenizer: Tokenizer, text: str) -> list[str]:
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))]


def _count_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    words: Counter[str] = Counter()
    for piece, count in Counter(piece for text in texts for piece in text.split()).items():
        for word in _words(tokenizer, piece):
            words[word] += count
    return words


def _learn(
    model: models.Model, trainer: Any, words: Counter[str], first: list[str], vocab_size: int, **options: Any
) -> Tokenizer:
    """Learns the pieces of words with their frequencies; the pieces `first` come first."""
    if len(first) > vocab_size:
        raise ValueError(f"vocab_size={vocab_size} is too small: the characters alone need {len(first)} pieces")
    learner = Tokenizer(model)
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # The trainer would order characters by a hash table, and break ties between pieces by that order. As special
    # tokens, they keep the given order, which makes the training reproducible.
    settings = {"special_tokens": first, "vocab_size": vocab_size, "show_progress": False}
    learner.train_from_iterator(words.elements(), trainer(**settings, **options))
    return learner


def train_bpe(
    texts: Iterable[str],
    vocab_size: int,
    *,
    alphabet: Iterable[str] = (),
    lowercase: bool = False,
    min_frequency: int = 2,
) -> PreTrainedTokenizerFast:
    """Trains a byte-pair encoding as SentencePiece does, with spaces as `▁` and unknown characters in bytes: `<s>
    pieces </s>`, Unicode NFC, at most 1024 tokens. Arguments are as in `train_wordpiece`. A unigram model, as mBART
    has, would find different pieces in every run.

    Examples:
        >>> processor = Rc3Processor.new(train_bpe(captions, vocab_size=8000), ["en", "de"])
    """
    tokenizer = Tokenizer(models.BPE())
    fold = [normalizers.Lowercase()] if lowercase else []
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), *fold, normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    words = _count_words(tokenizer, texts)
    characters = set().union(*words, *map(tokenizer.normalizer.normalize_str, alphabet)) - {" "}
    first = [*BPE_SPECIAL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256)), *sorted(characters)]
    learned = _learn(models.BPE(), trainers.BpeTrainer, words, first, vocab_size, min_frequency=min_frequency)
    found = json.loads(learned.to_str())["model"]
    merges = [tuple(merge) for merge in found["merges"]]
    tokenizer.model = models.BPE(found["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    *ordinary, mask = BPE_SPECIAL_TOKENS
    # A mask replaces a word and the space before it.
    tokenizer.add_special_tokens([*ordinary, AddedToken(mask, lstrip=True, special=True)])
    template = "<s> $A </s>", "<s> $A </s> $B </s>"
    return _fast(tokenizer, template, 1024, bos="<s>", pad="<pad>", eos="</s>", unk="<unk>", mask="<mask>")


def _fast(tokenizer: Tokenizer, template: tuple[str, str], max_tokens: int, **special: str) -> PreTrainedTokenizerFast:
    single, pair = template
    around = [(token, tokenizer.token_to_id(token)) for token in single.split(" $A ")]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=around)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_tokens,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{name}_token": token for name, token in special.items()},
    )


def unknown_rate(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> float:
    """Returns the share of [UNK] in texts, in percent of all tokens except special ones."""
    ids = [token for row in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] for token in row]
    return 100 * ids.count(tokenizer.unk_token_id) / max(len(ids), 1)
