"""Templates of zero-shot classification in some forty languages, in which `{}` stands for the label of a class.

They were written for this package, so that the label can stand in its basic form, and are a module rather than data
because the code of a published model holds them: transformers fetches Python files alone.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..configuration.errors import InputError
from ..configuration.languages import language_and_script, normalize_language

# Language -> its templates.
Prompts = Mapping[str, Sequence[str]]

LABEL_ALONE = "{}"


def check_templates(templates: Iterable[str], place: str) -> None:
    """
    Raises:
        InputError: for a template without `{}`, whose text would be the same for all classes.
    """
    for template in templates:
        if LABEL_ALONE not in template:
            raise InputError(f"{place}: the template {template!r} has no {{}}, where the label of a class stands")


def templates_of(language: str, prompts: Prompts) -> list[str]:
    """The templates of a language, those of its own tag first, and else those of the same language and script (`pt`
    for `pt-BR`, `zh-Hant` for `zh-TW`, but not `sr` for `sr-Latn`); an empty list for a language without any."""
    language = normalize_language(language)
    if language in prompts:
        return list(prompts[language])
    written = language_and_script(language)
    return next((list(given) for tag, given in prompts.items() if language_and_script(tag) == written), [])


def photo_template(language: str) -> str | None:
    """The template of a language in `PHOTO_TEMPLATES`; None for a language without one."""
    return next(iter(templates_of(language, PHOTO_TEMPLATES)), None)


def filled(template: str, label: str) -> str:
    """The text that a template makes of a label; other braces stay as they are."""
    return template.replace(LABEL_ALONE, label)


PHOTO_TEMPLATES: Prompts = {
    "af": ["Dit is 'n foto van {}."],
    "ar": ["هذه صورة {}."],
    "bg": ["Това е снимка на {}."],
    "bn": ["এই ছবিতে {} আছে।"],
    "cs": ["Na této fotografii je {}."],
    "da": ["Dette er et foto af {}."],
    "de": ["Auf diesem Foto ist {} zu sehen."],
    "el": ["Σε αυτή τη φωτογραφία: {}."],
    "en": ["This is a photo of {}."],
    "es": ["Esta es una foto de {}."],
    "et": ["Sellel fotol on {}."],
    "fa": ["این عکسی از {} است."],
    "fi": ["Tässä kuvassa on {}."],
    "fr": ["Sur cette photo : {}."],
    "he": ["זו תמונה של {}."],
    "hi": ["इस तस्वीर में {} है।"],
    "hr": ["Na ovoj fotografiji je {}."],
    "hu": ["Ezen a képen {} látható."],
    "id": ["Ini adalah foto {}."],
    "it": ["Questa è una foto di {}."],
    "ja": ["これは{}の写真です。"],
    "ko": ["이것은 {} 사진입니다."],
    "lt": ["Šioje nuotraukoje yra {}."],
    "lv": ["Šajā fotogrāfijā ir {}."],
    "ms": ["Ini ialah foto {}."],
    "nb": ["Dette er et bilde av {}."],
    "nl": ["Dit is een foto van {}."],
    "nn": ["Dette er eit bilete av {}."],
    "no": ["Dette er et bilde av {}."],
    "pl": ["Na tym zdjęciu jest {}."],
    "pt": ["Esta é uma foto de {}."],
    "ro": ["Aceasta este o fotografie cu {}."],
    "ru": ["На этой фотографии — {}."],
    "sk": ["Na tejto fotografii je {}."],
    "sl": ["Na tej fotografiji je {}."],
    "sr": ["На овој фотографији је {}."],
    "sr-Latn": ["Na ovoj fotografiji je {}."],
    "sv": ["Det här är ett foto av {}."],
    "sw": ["Hii ni picha ya {}."],
    "ta": ["இந்தப் படத்தில் {} உள்ளது."],
    "te": ["ఈ ఫోటోలో {} ఉంది."],
    "th": ["นี่คือรูปถ่ายของ {}"],
    "tl": ["Ito ay larawan ng {}."],
    "tr": ["Bu bir {} fotoğrafı."],
    "uk": ["На цій фотографії — {}."],
    "ur": ["اس تصویر میں {} ہے۔"],
    "vi": ["Đây là ảnh chụp {}."],
    "zh": ["这是一张{}的照片。"],
    "zh-Hant": ["這是一張{}的照片。"],
}
