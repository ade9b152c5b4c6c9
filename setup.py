"""What pyproject.toml cannot say: on PyPI, the links and images of README.md lead to the repository."""

import re
from pathlib import Path

from setuptools import setup

REPOSITORY = "https://github.com/babelens/babelens"
_LINK = re.compile(r"(!?)(\[(?:[^][]|\[[^]]*\]\([^)]*\))*\]\()(?!https?://|#|mailto:)([^)\s]+)")


def readme() -> str:
    """README.md with absolute links."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    while (
        made := _LINK.sub(lambda m: f"{m[1]}{m[2]}{REPOSITORY}/{'raw' if m[1] else 'blob'}/main/{m[3]}", text)
    ) != text:
        text = made
    return text


setup(long_description=readme(), long_description_content_type="text/markdown")
