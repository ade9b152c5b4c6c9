"""`babelens info --environment`: what a bug report needs, without the name of the user."""

import json
import os
import subprocess
import sys

import torch
import transformers

from babelens import __version__

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
sys.argv[0] = "/usr/bin/babelens"
from babelens.cli.main import main
main()
"""


def shown(*arguments, program=("-m", "babelens"), **environment):
    command = [sys.executable, *program, "info", "--environment", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_has_what_a_report_needs(run):
    facts = json.loads(run("info", "--environment", "--json").output)
    assert facts["babelens"] == __version__ and facts["python"].startswith(f"{sys.version_info.major}.")
    assert facts["packages"]["transformers"] == transformers.__version__
    assert facts["torch"]["build"] == torch.__version__ and facts["torch"]["threads"] == torch.get_num_threads()
    assert facts["processor"]["cores"] == os.cpu_count() and facts["processor"]["model"]
    assert {"emoji", "regions", "segmenters", "translation"} <= facts["extras"].keys()
    lines = shown().splitlines()
    assert lines[0] == f"babelens: {__version__}" and f"  build: {torch.__version__}" in lines


def test_it_names_no_user_and_no_token():
    named = {"USER": "somebody", "LOGNAME": "somebody", "HOME": "/home/somebody", "HF_TOKEN": "hf_secret"}
    text = shown("--json", **named, HF_HUB_CACHE="/data/somebody/hub", HF_ENDPOINT="https://somebody:key@hub.example")
    assert "somebody" not in text and "secret" not in text and "key" not in text
    facts = json.loads(text)["hugging_face"]
    assert facts["hub_cache"] == "/data/USER/hub" and facts["endpoint"] == "hub.example"
    assert facts["datasets_cache"].startswith("~/")


def test_it_works_where_torch_does_not():
    facts = json.loads(shown("--json", program=("-c", WITHOUT_TORCH)))
    assert facts["torch"]["error"].startswith("ModuleNotFoundError") and facts["packages"]["torch"]


def test_it_takes_no_model(run):
    assert "either a model or --environment" in run("info", "mural-base", "--environment", code=2).output
    assert "either a model or --environment" in run("info", code=2).output
