import json
import shlex

import pytest

from babelens.utils.redaction import HIDDEN, is_secret, names_token, redact

# By form; joined here, so no scanner takes them for real tokens.
TOKENS = [
    "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567",
    "api_org_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ",
    "ghp_" + "abcDEF0123456789abcDEF0123456789abcd",
    "github_pat_" + "11ABCDEFG0abcdefghij_klmnopqrstuvwxyz",
    "sk-" + "abcdefghijklmnop1234567890ABCDEF",
    "sk-proj-" + "abcDEF-0123_456789",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "xoxb-" + "123456789012-abcdefGHIJKL",
    "AIza" + "SyA-1234567890abcdefghijklmnopqrstu",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
]
SECRET = "p4ss w&rd'x"
NAMES = (
    *("training.hub_token", "hub-token", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "wandb_key", "api_key", "apiKey"),
    *(
        "subscription_key",
        "admin-token",
        "password",
        "db.passwd",
        "auth",
        "credentials",
        "client_secret",
        "OPENAI_API_KEY",
        "token",
        "key",
        "accessKey",
    ),
)


def test_tokens_are_known_by_their_form():
    for text in ("babelens push x --comment {}", '{{"note": "{}"}}', "https://{}@huggingface.co/a/b", "--x={},b"):
        for token in TOKENS:
            given = text.format(token)
            assert token not in redact(given) and HIDDEN in redact(given) and names_token(given)
            assert token not in json.dumps(redact({"a": [given], "b": {"c": (given,)}}))


@pytest.mark.parametrize("name", ["training.hub_token", "apiKey"])
def test_values_are_known_by_the_names_of_options_and_settings(name):
    assert all(map(is_secret, NAMES))
    for command in (
        ["x", f"--{name}", SECRET, "--after"],
        ["x", f"--{name}={SECRET}", "--after"],
        ["x", "--set", f"{name}={SECRET}", "--after"],
        ["env", f"{name}={SECRET}", "x", "--after"],
    ):
        kept = redact(command)
        assert "p4ss" not in shlex.join(kept) and kept[-1] == "--after" and name in shlex.join(kept)
    assert redact({name: SECRET, "more": {name: SECRET}, "pin": 1}) == {name: HIDDEN, "more": {name: HIDDEN}, "pin": 1}
    assert redact({name: None}) == {name: None} and redact({name: True}) == {name: True}


def test_values_are_known_by_their_names_in_texts():
    name = "password"
    for text in (
        f"{name}=hunter2two",
        f"--{name} hunter2two",
        f'{{"{name}": "hunter2two"}}',
        f"--set {name}=hunter2two",
    ):
        assert "hunter2" not in redact(f"run {text} --steps 3") and redact(f"run {text} --steps 3").endswith(
            "--steps 3"
        )
    words = shlex.join(["x", "--set", f"{name}=hunter2 two", "--steps", "3"])
    assert "hunter2" not in redact(words) and "two" not in redact(words)
    assert "9f8e7d6c" not in redact(f"{name} was 9f8e7d6c5b4a39281706, and is another")


def test_passwords_leave_addresses_and_headers():
    for address in ("https://me:hunter2@host/a", "s3://hunter2:hunter2@bucket/a", "https://me:hun/ter2@host/a"):
        hidden = f"{address.partition('//')[0]}//{HIDDEN}@{address[address.rindex('@') + 1 :]}"
        assert redact(f"--data {address} --steps 3") == f"--data {hidden} --steps 3"
    assert redact("https://host/a?token=hunter2&size=3") == f"https://host/a?token={HIDDEN}&size=3"
    signed = "https://a.blob.core.windows.net/b?sv=2024&sig={}&se=9"
    assert redact(signed.format("Ab%2Bhunter2")) == signed.format(HIDDEN)
    for text in ("training={hub_token: hunter2, seed: 1}", "X-API-Key: hunter2"):
        assert "hunter2" not in redact(text) and redact(text).startswith(text.partition("hunter2")[0])
    assert "hunter2A" not in redact('-H "Authorization: Bearer hunter2A"')


INNOCENT = [
    *("--tokenizer bert --max-tokens 40", "pad_token=[PAD] eos_token='</s>'", "en-sk-opensubtitles2018-train.tsv"),
    *("recipe.yaml: training.key: there is no such key", "unknown key: 'model.foo'", "hf_transfer", "sk-SK"),
    *("the token has 3 characters", "https://host:8080/a@b", "git@github.com:a/b.git", "keyboard=us monkey=1"),
    *("author=Jane authors=Jane", "token: the server wants one", "task-embedding-model-for-retrieval"),
    *("config.text_config.pad_token_id=0 num_key_value_heads=2", "train.image_text.options.keywords=a"),
]


def test_what_is_no_secret_stays():
    for text in INNOCENT:
        assert redact(text) == text
        assert redact(text.split()) == text.split()
