"""What processors of methods with a vocabulary for each language check before they read anything."""

from typing import Any

from ..configuration.languages import language_for_each


def check_inputs(images: Any, text: Any, language: Any) -> None:
    """
    Raises:
        ValueError: for nothing at all, an empty list, texts without a language, or a language without texts.
    """
    if images is None and text is None:
        raise ValueError("give images=, text=, or both")
    for name, given in (("images", images), ("text", text)):
        if isinstance(given, list) and not given:
            raise ValueError(f"{name} is an empty list")
    if text is None and language is not None:
        raise ValueError("language= was given without text=")
    if text is not None and language is None:
        raise ValueError("text= was given without language=: each language has its own way of reading")


def texts_with_languages(
    text: str | list[str], language: str | list[str] | tuple[str, ...]
) -> tuple[list[str], list[str]]:
    """Texts as a list, and the canonical tag of each.

    Raises:
        LanguageTagError: for an unknown language tag.
        ValueError: for what is no text, or when there are not as many languages as texts.
    """
    texts = [text] if isinstance(text, str) else list(text)
    for entry in texts:
        if not isinstance(entry, str):
            raise ValueError(f"text= has {entry!r}, which is no text")
    return texts, language_for_each(language, len(texts))
