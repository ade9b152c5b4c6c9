import pytest
from transformers import AutoTokenizer, BertTokenizer

from babelens import MuralProcessor
from babelens.processing.image_processing_mural import MuralImageProcessor
from tests.contracts import ProcessorContract


class TestMuralProcessor(ProcessorContract):
    factory = "make_mural"


@pytest.fixture
def with_bert_tokenizer(tmp_path) -> MuralProcessor:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ein", "rotes", "auto"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    return MuralProcessor(MuralImageProcessor(), BertTokenizer(str(tmp_path / "vocab.txt")))


def test_segment_numbers_of_berts_tokenizer_are_left_out(with_bert_tokenizer, tmp_path):
    """Not every text tower has an input for them, and pipelines pass on everything that a tokenizer returns."""
    assert set(with_bert_tokenizer(text="ein auto", language="de")) == {"input_ids", "attention_mask"}
    with_bert_tokenizer.save_pretrained(tmp_path / "saved")
    alone = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert set(alone("ein auto")) == {"input_ids", "attention_mask"}
