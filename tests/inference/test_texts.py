import pytest

from babelens import Embedder
from babelens.inference.texts import languages_of, warn_of_language
from tests.support.tiny_native import saved, tiny_clip


@pytest.mark.parametrize(
    ("card", "silent", "warned"),
    [
        (None, ["a red car", "α = 2 things", "🚗 €5", "iPhone 12 车"], {"赤い車": "Chinese", "червоний": "Cyrillic"}),
        ("ja\n- uk", ["赤い車コーヒー", "червоний"], {"a red car": "Latin letters", "차": "Hangul"}),
        ("multilingual\n- de", ["червоний", "a red car"], {}),
    ],
)
def test_a_query_in_a_script_that_the_model_does_not_state_is_told_once(card, silent, warned, tmp_path, caplog):
    folder = saved(tiny_clip(), tmp_path / "clip")
    if card:
        (folder / "README.md").write_text(f"---\nlanguage:\n- {card}\n---\n# A model\n")
    embedder = Embedder.from_pretrained(folder)
    caplog.clear()
    embedder.encode_text(silent)
    assert not caplog.messages
    for text, script in warned.items():
        embedder.encode_text([text])
        embedder.encode_text([f"{text} {text}"])
        assert len(caplog.messages) == 1 and script in caplog.text and "may mean nothing" in caplog.text
        caplog.clear()
    # The warning for the language already covers this.
    warn_of_language("el", *languages_of(embedder.processor, str(folder)), str(folder))
    caplog.clear()
    embedder.encode_text("κόκκινο", language="el")
    assert not caplog.messages
