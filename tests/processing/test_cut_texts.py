import pytest

from babelens.inference.texts import reporting_cut_texts
from babelens.processing import processing_dual_encoder
from babelens.processing.processing_per_language import counting_cut_texts
from tests.contracts import CAPTIONS

LONG = "ein rotes Auto " * 80


@pytest.mark.parametrize(
    "factory", ["make_mural", "make_mla", "make_mla_student", "make_ridge", "make_smalr", "make_liwe"]
)
def test_every_processor_says_once_that_it_cuts(factory, request, caplog):
    processor = request.getfixturevalue(factory)()[1]
    processing_dual_encoder.logger.warning_once.cache_clear()
    processor(text=CAPTIONS["de"], language="de")
    processor(text=LONG[:500], language="de", truncation=False)  # of more, a ridge reads 512 characters in any case
    assert not caplog.records
    for _ in range(2):
        processor(text=["a", LONG], language="de")
    (record,) = caplog.records
    assert "are cut there" in record.getMessage() and record.levelname == "WARNING"


def test_texts_that_were_cut_are_counted_where_somebody_counts(make_mla, caplog):
    processor = make_mla()[1]
    processing_dual_encoder.logger.warning_once.cache_clear()
    with counting_cut_texts() as cut:
        processor(text=["a", LONG], language="de")
        processor(text=LONG + "b", language="en")
    assert set(cut) == {LONG, LONG + "b"} and not caplog.records
    with reporting_cut_texts(["a", LONG, LONG]):
        processor(text=["a", LONG, LONG], language="de")
    assert "2 of 3 texts are longer than the 64 tokens" in caplog.text
    caplog.clear()
    with counting_cut_texts() as cut, reporting_cut_texts(["a", LONG]):
        processor(text=["a", LONG], language="de")
    with reporting_cut_texts(["a"]):
        processor(text="a", language="de")
    assert set(cut) == {LONG} and not caplog.records
