import pytest

from babelens.inference.texts import languages_of, warn_of_language
from tests.support.tiny_native import saved, tiny_clip


@pytest.mark.parametrize(
    ("card", "warned"), [(None, {"uk", "de"}), ("ja\n- uk-Cyrl", {"de"}), ("multilingual", set()), ("de\n- uk", set())]
)
def test_a_language_that_the_model_does_not_state_is_told_once(card, warned, tmp_path, caplog):
    folder = saved(tiny_clip(), tmp_path / "clip")
    if card:
        (folder / "README.md").write_text(f"---\nlanguage:\n- {card}\n---\n# A model\n")
    for language in ("de", "uk", "und", "de", "uk"):
        warn_of_language(language, *languages_of(None, str(folder)), str(folder))
    assert len(caplog.messages) == len(warned)
    assert all(any(tag in message for message in caplog.messages) for tag in warned)
