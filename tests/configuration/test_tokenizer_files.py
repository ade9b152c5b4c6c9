import json

import pytest
from tokenizers import processors
from transformers import AutoProcessor, AutoTokenizer, GemmaTokenizer, SiglipConfig, SiglipProcessor
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from babelens.utils import pretrained
from babelens.utils.pretrained import load_processor
from tests.support.tiny_dual_encoders import bert_tokenizer, tiny_siglip2, xlm_tokenizer
from tests.support.tiny_native import tiny_clip


@pytest.fixture(autouse=True)
def told_anew():
    pretrained.logger.warning_once.cache_clear()


def change(file, **changes):
    kept = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in kept.items() if value is not None}))


def test_padding_that_tokenizer_json_states_makes_no_difference(tmp_path, caplog):
    """all-MiniLM-L6-v2 and many models of sentence-transformers pad each text to a fixed length."""
    tokenizer = bert_tokenizer()
    tokenizer.backend_tokenizer.enable_padding(length=32)
    tokenizer.save_pretrained(tmp_path)
    load_processor(AutoTokenizer, tmp_path)
    assert "tokenizer_config.json" not in caplog.text


def test_siglip_2_of_a_fixed_size_reads_lower_case(tmp_path):
    """Its folders name Gemma's tokenizer. A saved tokenizer reads lower case, too."""
    own = tiny_siglip2()[1].tokenizer
    sides = {"padding_side": "right", "add_bos_token": False, "add_eos_token": True}
    gemma = GemmaTokenizer(own.get_vocab(), own._merges, model_max_length=64, **sides)
    SiglipConfig().save_pretrained(tmp_path)
    SiglipProcessor(SiglipImageProcessorPil(), gemma).save_pretrained(tmp_path)
    assert gemma("A Red Circle") != gemma("a red circle")
    loaded = load_processor(AutoProcessor, tmp_path)
    loaded.save_pretrained(tmp_path / "again")
    for reads in (loaded, AutoTokenizer.from_pretrained(tmp_path / "again")):
        tokenizer = getattr(reads, "tokenizer", reads)
        assert tokenizer("A Red Circle")["input_ids"] == gemma("a red circle")["input_ids"]
        assert tokenizer.padding_side == "right"


@pytest.mark.parametrize("cased", [True, False])
def test_case_that_only_tokenizer_json_states(cased, tmp_path, caplog):
    bert_tokenizer().save_pretrained(tmp_path)
    change(tmp_path / "tokenizer_config.json", do_lower_case=None, strip_accents=None)
    stated = json.loads((tmp_path / "tokenizer.json").read_text())
    stated["normalizer"] |= {"lowercase": not cased, "strip_accents": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(stated))
    loaded = load_processor(AutoTokenizer, tmp_path)
    loaded.save_pretrained(tmp_path / "again")
    for reads in (loaded, AutoTokenizer.from_pretrained(tmp_path / "again")):
        assert (reads.backend_tokenizer.normalizer.normalize_str("ÖL") == "ÖL") == cased
    assert "tokenizer_config.json" not in caplog.text


def test_a_flag_against_tokenizer_json_is_told(tmp_path, caplog):
    bert_tokenizer().save_pretrained(tmp_path)
    change(tmp_path / "tokenizer_config.json", do_lower_case=True)
    assert load_processor(AutoTokenizer, tmp_path).backend_tokenizer.normalizer.normalize_str("A") == "a"
    assert "do_lower_case" in caplog.text and str(tmp_path) in caplog.text


@pytest.mark.parametrize("make", [xlm_tokenizer, lambda: tiny_clip()[1].tokenizer])
def test_lower_case_of_sentence_transformers(make, tmp_path):
    make().save_pretrained(tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True, "max_seq_length": 32}))
    loaded = load_processor(AutoTokenizer, tmp_path)
    loaded.save_pretrained(tmp_path / "again")
    for reads in (loaded, AutoTokenizer.from_pretrained(tmp_path / "again")):
        assert reads(["A Red Circle", "a"], padding=True) == make()(["a red circle", "a"], padding=True)
        assert (reads.model_max_length, reads.pad_token) == (make().model_max_length, make().pad_token)


def test_ends_of_texts_are_told(tmp_path, caplog):
    xlm_tokenizer().save_pretrained(tmp_path)
    stated = AutoTokenizer.from_pretrained(tmp_path).backend_tokenizer
    stated.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    stated.save(str(tmp_path / "tokenizer.json"))
    load_processor(AutoTokenizer, tmp_path)
    assert "add_bos_token" in caplog.text and str(tmp_path) in caplog.text
