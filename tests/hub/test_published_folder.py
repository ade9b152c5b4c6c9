import ast
import filecmp
import importlib
import json
import pkgutil

from transformers import AutoModel, pipeline

import babelens
from babelens.processing.image_processing_mural import MuralImageProcessor
from babelens.utils.hub_code import export_code, file_of
from babelens.utils.hub_mixin import HubCodeMixin


def test_the_model_offers_its_pipelines_where_the_package_is_missing(published, make_mural, tmp_path):
    config = json.loads((published / "config.json").read_text())
    assert config["custom_pipelines"] == {
        task: {"impl": f"pipelines.{name}", "pt": [auto_class], "type": "multimodal"}
        for task, name, auto_class in (
            ("feature-extraction", "MultilingualFeatureExtractionPipeline", "AutoModel"),
            ("image-feature-extraction", "ImageEmbeddingPipeline", "AutoModel"),
            (
                "zero-shot-image-classification",
                "MultilingualZeroShotPipeline",
                "AutoModelForZeroShotImageClassification",
            ),
        )
    }
    # With the package, its own classes and pipelines are taken without `trust_remote_code`, and with it.
    for trusting in ({}, {"trust_remote_code": True}):
        model = AutoModel.from_pretrained(published, **trusting)
        assert type(model) is babelens.MuralModel and not hasattr(model.config, "custom_pipelines")
        embed = pipeline("feature-extraction", model=str(published), **trusting)
        assert type(embed).__module__ == "babelens.inference.pipelines"
    model.save_pretrained(tmp_path)
    assert not hasattr(model.config, "custom_pipelines")
    saved = json.loads((tmp_path / "config.json").read_text())
    for tower in ("text_config", "vision_config"):
        assert saved[tower].pop("dtype") == "float32"  # which transformers notes when it loads a model
    assert saved == config


def test_the_order_of_saving_does_not_matter(published, make_mural, tmp_path):
    model, processor = make_mural()
    for part in (processor, model.config, model):
        part.save_pretrained(tmp_path)
    names = sorted(path.name for path in published.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert filecmp.cmpfiles(published, tmp_path, names, shallow=False)[1:] == ([], [])


def test_exportable_modules_keep_the_rules(tmp_path):
    for room in ("configuration", "modeling", "processing"):
        package = importlib.import_module(f"babelens.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"babelens.{room}.{module.name}")
    classes, waiting = [], [HubCodeMixin]
    while waiting:
        waiting += (
            subclasses := [cls for cls in waiting.pop().__subclasses__() if cls.__module__.startswith("babelens.")]
        )
        classes += [cls for cls in subclasses if "auto_classes" in vars(cls)]
    for method in babelens.METHODS.values():
        assert {method.config, *method.models, method.processor, MuralImageProcessor} <= {*classes}
    for cls in classes:
        auto_map, _ = export_code(cls, tmp_path / cls.__name__)  # refuses whatever cannot travel
        assert {auto_map[name] for name in cls.auto_classes} == {f"{file_of(cls.__module__)}.{cls.__name__}"}
    for path in {path.read_bytes(): path for path in tmp_path.rglob("*.py")}.values():
        for call in ast.walk(ast.parse(path.read_text())):
            # Each Auto class loads its own copy of the configuration's class, so isinstance would return False.
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("isinstance", "issubclass"):
                named = {node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)}
                own = {other.__name__ for other in classes if other.__name__.endswith("Config")}
                assert not named & own, f"{path.name}, line {call.lineno}: isinstance of {named & own}"
