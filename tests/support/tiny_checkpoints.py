"""Tiny text checkpoints of four languages as the Hub has them: mBART-50, XLM-R (Unigram), M-BERT (WordPiece)."""

from collections.abc import Callable

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from babelens.processing.tokenizer_training import train_wordpiece
from tests.support.tiny_layers import encoder_decoder
from tests.support.tiny_training import shapes_texts

RUSSIAN = ["красный квадрат", "зелёный столбец", "жёлтая точка", "синяя полоса"]
TEXTS = {language: shapes_texts()[number::3] for number, language in enumerate(("en", "de", "fr"))} | {"ru": RUSSIAN}
ALL_TEXTS = [text for texts in TEXTS.values() for text in texts]
KEPT_TEXTS = TEXTS["en"] + TEXTS["de"]  # a vocabulary for these is what tests cut to

Checkpoint = tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase]
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
_ENCODER = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def _unigram() -> list[tuple[str, float]]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=list(_FAIRSEQ), unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(ALL_TEXTS, trainer)
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    # The trainer numbers pieces of one score as they come; their own scores keep the best path unique.
    return [(piece, 0.0 if piece in _FAIRSEQ else -2.0 - number / 7) for piece, number in pieces]


def tiny_mbart() -> Checkpoint:
    """`facebook/mbart-large-50`: ties, a bias on the logits, language codes, generation's tokens in every form."""
    specials = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    tokenizer = transformers.MBart50Tokenizer(vocab=specials + _unigram()[4:], src_lang="de_DE", tgt_lang="en_XX")
    torch.manual_seed(0)
    sizes = encoder_decoder(vocab_size=len(tokenizer), init_std=0.3, max_position_embeddings=64)
    model = transformers.MBartForConditionalGeneration(transformers.MBartConfig(**sizes))
    with torch.no_grad():
        model.final_logits_bias.normal_(std=0.5)
    german, english = (tokenizer.lang_code_to_id[code] for code in ("de_DE", "en_XX"))
    french = tokenizer.convert_tokens_to_ids("g")
    model.config.task_specific_params = {"translation_de_to_en": {"decoder_start_token_id": english}}
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=[2, tokenizer.mask_token_id],
        decoder_start_token_id=german,
        forced_bos_token_id=english,
        suppress_tokens=[3, french],
        begin_suppress_tokens=[french],
        bad_words_ids=[[3], [french, english]],
        sequence_bias=[[[german], -4.5]],
        max_new_tokens=12,
        lang_code_to_id=dict(tokenizer.lang_code_to_id),
    )
    return model.eval(), tokenizer


def tiny_xlm_roberta() -> Checkpoint:
    tokenizer = transformers.XLMRobertaTokenizer(vocab=[*_unigram(), ("<mask>", 0.0)])
    torch.manual_seed(0)
    config = transformers.XLMRobertaConfig(
        vocab_size=len(tokenizer) + 3,  # rows that no piece has, as checkpoints have for round numbers
        max_position_embeddings=66,
        initializer_range=0.3,
        tie_word_embeddings=False,
        **_ENCODER,
    )
    return _with_random_bias(transformers.XLMRobertaForMaskedLM(config)), tokenizer


def tiny_mbert() -> Checkpoint:
    pieces = train_wordpiece(ALL_TEXTS, 230, min_frequency=1, lowercase=False).get_vocab()
    tokenizer = transformers.BertTokenizer(vocab=pieces, do_lower_case=False)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=64, initializer_range=0.3, **_ENCODER
    )
    return _with_random_bias(transformers.BertForMaskedLM(config)), tokenizer


def _with_random_bias(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    with torch.no_grad():
        model.get_output_embeddings().bias.normal_(std=0.5)
    return model.eval()


CHECKPOINTS: dict[str, Callable[[], Checkpoint]] = {
    "mbart": tiny_mbart,
    "xlm_roberta": tiny_xlm_roberta,
    "mbert": tiny_mbert,
}
