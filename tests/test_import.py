import json
import os
import subprocess
import sys

import pytest
import transformers
from transformers import AutoConfig
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

import babelens
from babelens import registry
from babelens.processing.image_processing_mural import MuralImageProcessor

IMPORT = """
import json, socket, sys

def refuse(*arguments, **options):
    raise OSError("no network here")

socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
from transformers import AutoImageProcessor, AutoModel, AutoProcessor
before = set(sys.modules)
import babelens
modules = {name.partition(".")[0] for name in set(sys.modules) - before}
rooms = [name for name in sys.modules if name.startswith("babelens.")]
print(json.dumps({"modules": sorted(modules), "rooms": sorted(rooms)}))
"""


def test_it_loads_no_more_than_it_needs():
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run([sys.executable, "-c", IMPORT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not {"datasets", "evaluate", "typer", "rich", "matplotlib", "pandas"} & set(found["modules"])
    rooms = {name.split(".")[1] for name in found["rooms"]}
    assert rooms <= {"configuration", "inference", "modeling", "processing", "registry", "utils"}


def test_the_public_names_are_there():
    for name in babelens.__all__:
        assert getattr(babelens, name) is not None
    assert {"MuralConfig", "MuralModel", "MuralProcessor", "MuralTrainer"} <= set(babelens.__all__)
    assert {"ContrastiveTrainingArguments", "Embedder", "load_preset"} <= set(babelens.__all__)


def test_a_name_that_is_not_there_is_missed_in_the_usual_way():
    with pytest.raises(AttributeError, match="MuralTrainr"):
        babelens.MuralTrainr  # noqa: B018


def test_registering_again_changes_nothing():
    registry.register()
    registry.register()
    for method in babelens.METHODS.values():
        assert type(AutoConfig.for_model(method.name)) is method.config
        for model in method.models:
            for name in model.auto_classes:
                assert getattr(transformers, name)._model_mapping[method.config] is model
        assert PROCESSOR_MAPPING[method.config] is method.processor
        assert IMAGE_PROCESSOR_MAPPING[method.config] == {"pil": MuralImageProcessor}


def test_errors_are_found_at_their_former_location():
    from babelens.configuration.errors import BabelensError, CorpusError
    from babelens.utils import errors

    assert (BabelensError, CorpusError) == (errors.BabelensError, errors.CorpusError)
