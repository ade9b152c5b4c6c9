"""Removes secrets from recorded commands, settings, logs and messages: these name a token without showing it."""

import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

# ---- By form: tokens with a recognizable prefix ----
_FORMS = re.compile(
    r"""(?<![A-Za-z0-9])(?:
    hf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,} | hf_[a-z]{20,} | api_org_[A-Za-z0-9]{8,}
    | gh[pousr]_[A-Za-z0-9]{8,} | github_pat_\w{8,} | glpat-[\w-]{8,}
    | sk-(?:proj|ant|svcacct|or|live|test)-[\w-]{8,} | [srp]k_(?:live|test)_\w{8,} | sk-(?=[A-Za-z]*\d)\w{18,}
    | (?:AKIA|ASIA)[0-9A-Z]{12,} | AIza[\w-]{16,} | ya29\.[\w-]{8,}
    | xox[a-z]-[\w-]{8,} | npm_[A-Za-z0-9]{20,} | pypi-[\w-]{20,} | gsk_\w{16,} | nvapi-[\w-]{16,}
    | wandb_v1_\w{8,} | r8_[A-Za-z0-9]{16,}
    | eyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)(?=[^\s'\"]*[^a-z\s'\"])[\w.~+/=-]{8,}")
_OF_ADDRESS = re.compile(r"(?<=://)(?:[^\s/@'\"]+|[^\s:/@'\"]+:(?!\d+/)[^\s@'\"]+)@")

# ---- By name: words of a name in snake_case, kebab-case, camelCase or with dots ----
_ANYWHERE = {"secret", "secrets", "password", "passwords", "passwd", "passphrase", "pwd", "credential", "credentials"}
_ANYWHERE |= {"apikey", "accesskey", "authtoken", "authorization", "secretkey", "accesstoken"}
_LAST = {"token", "key", "auth", "cookie", "signature", "sig", "pat"}
_PAIRS = re.compile(r"(?:api|access|auth|private|hub|hf|github|gh|wandb|aws|bearer|session|refresh) (?:key|token)s?\b")
# Tokens of a model's vocabulary, and their numbers.
_OF_TEXTS = re.compile(
    r"\b(?:pad|eos|bos|unk|mask|sep|cls|image|video|audio|text|class|start|end|prefix|suffix|special|additional|added"
    r"|decoder|boi|eoi|language|lang|max|min|num|n|new|per|sort|primary|foreign) (?:token|key)$"
)
_WEAK = {"key", "auth", "sig", "signature", "pat", "cookie"}  # ambiguous without another word

_WORD = r"token|secret|passw|passphrase|pwd|credential|key|auth|cookie|sig|pat\b"
_NAME = rf"(?<![\w.-])[\w.-]*(?:{_WORD})[\w.-]*"
_ASSIGNED = re.compile(
    rf"(?P<quote>['\"])(?P<name>{_NAME})(?P<between>=)(?P<value>(?:(?!(?P=quote)).)*)(?P=quote)", re.I
)
_GIVEN = re.compile(
    rf"(?P<name>{_NAME})(?P<between>['\"]?\s*[=:]\s*|\s+(?:(?:is|was)\s+)?)"
    rf"(?P<value>'[^']*'|\"(?:[^\"\\]|\\.)*\"|[^\s'\"&]+)",
    re.I,
)


def redact(value: Any, name: str = "") -> Any:
    """Replaces tokens, keys and passwords with `***` in a text, or in a list or mapping of texts, such as the words of
    a command. Secrets are recognized by name (`hub_token`, `--api-key`, `AWS_SECRET_ACCESS_KEY=…`), by form (`hf_…`,
    `ghp_…`) and by position in an address (`https://user:password@host`)."""
    if isinstance(value, Mapping):
        return {key: redact(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted_word(before, word, name) for before, word in zip(["", *value], value, strict=False)]
    if is_secret(name) and value and isinstance(value, str | int) and not isinstance(value, bool):
        return HIDDEN
    if not isinstance(value, str):
        return value
    text = _OF_ADDRESS.sub(f"{HIDDEN}@", _BEARER.sub(rf"\1\2{HIDDEN}", _FORMS.sub(HIDDEN, value)))
    return _GIVEN.sub(_hidden, _ASSIGNED.sub(_hidden, text))


def typed_command(program: str | None = None) -> str:
    """Returns the command of this process without secrets; `program` replaces its first word."""
    return shlex.join(redact([program or sys.argv[0], *sys.argv[1:]]))


def names_token(text: str) -> bool:
    """Returns whether a text contains a token of a known form."""
    return _FORMS.search(text) is not None


def is_secret(name: str) -> bool:
    words = _words(name)
    text = " ".join(words)
    if not words or not _ANYWHERE.isdisjoint(words):
        return bool(words)
    return (words[-1] in _LAST and not _OF_TEXTS.search(text)) or _PAIRS.search(text) is not None


def _words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+", " ", name).lower().split()


def _redacted_word(before: Any, word: Any, name: str) -> Any:
    """Redacts a word of a command, which may be the value of the option `before` it."""
    if isinstance(word, str):
        own, equals, _ = word.partition("=")
        if equals and re.fullmatch(r"[\w.-]+", own) and is_secret(own):
            return f"{own}={HIDDEN}"
        if not word.startswith("--") and re.fullmatch(r"-[\w.-]+", str(before)) and is_secret(str(before)):
            return HIDDEN
    return redact(word, name)


def _hidden(match: re.Match[str]) -> str:
    name, between, value = match["name"], match["between"], match["value"]
    quote = match.groupdict().get("quote") or ""
    if not is_secret(name) or not (_is_given(match) or _looks_random(value.strip("'\"").rstrip(",;.)"))):
        return f"{quote}{name}{between}{_GIVEN.sub(_hidden, value)}{quote}"
    own = value[0] if value[:1] in ("'", '"') else ""
    return f"{quote}{name}{between}{own}{HIDDEN}{own}{quote}"


def _is_given(match: re.Match[str]) -> bool:
    """Returns whether this is an option or a setting with its value, rather than words of a sentence."""
    name, between, value = match["name"], match["between"], match["value"]
    if not between.strip():
        return name.startswith("-") and not value.startswith("--")
    is_weak = name.lower() in _WEAK and match.string[match.start() - 1 : match.start()] not in ("?", "&")
    if "=" in between:
        return not is_weak
    is_quoted = value[:1] in ("'", '"')
    if len(_words(name)) > 1 and not is_weak:
        return is_quoted or re.search(r"\d", value) is not None
    return is_quoted and between[0] in "'\""


def _looks_random(text: str) -> bool:
    return len(text) >= 16 and re.search(r"\d", text) is not None and re.fullmatch(r"[\w+/=.~-]+", text) is not None
