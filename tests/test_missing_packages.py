import importlib
import sys

import numpy as np
import pytest

from babelens.evaluation.analysis import language_map, save_figure
from babelens.evaluation.benchmarks import sampled_spearman
from babelens.evaluation.classification import neighbor_accuracy
from babelens.inference.onnx.model import open_graph
from babelens.processing.regions import _library
from babelens.search import lance
from babelens.trainers.rc3_tasks import RC3_TASKS
from babelens.utils.errors import MissingExtraError

ROWS, CLASSES = np.eye(4), np.arange(4)


@pytest.mark.parametrize(
    ("module", "package", "call"),
    [
        ("scipy.stats", "scipy", lambda: sampled_spearman(CLASSES, CLASSES, CLASSES)),
        ("sklearn.neighbors", "scikit-learn", lambda: neighbor_accuracy(ROWS, CLASSES, ROWS, CLASSES, neighbors=1)),
        ("sklearn.manifold", "scipy scikit-learn", lambda: language_map({})),
        ("matplotlib", "matplotlib", lambda: save_figure(None, "figure.svg")),
        ("sacrebleu", "sacrebleu", lambda: RC3_TASKS["translation"].check_measures()),
        ("onnxruntime", "onnxruntime", lambda: open_graph("text.onnx")),
        ("h5py", "h5py", lambda: _library("h5py")),
        ("lancedb", "lancedb", lance._library),
        ("mteb", "mteb", lambda: importlib.import_module("babelens.evaluation.mteb")),
    ],
)
def test_a_missing_package_is_named(module, package, call, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "babelens.evaluation.mteb", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=f": pip install {package}$"):
        call()
