"""Every error class of the package descends from `BabelensError`, so that callers can catch them all."""

import importlib
import pkgutil

import babelens
from babelens.utils import errors as errors_module
from babelens.utils.errors import BabelensError, nearest_first


def test_every_error_of_the_package_has_one_root():
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(babelens.__path__, "babelens.")
        if not module.name.endswith("__main__")
    ]
    errors = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__.startswith("babelens.")
    }
    assert errors >= {
        value
        for value in vars(errors_module).values()
        if isinstance(value, type) and value.__module__ == errors_module.__name__
    }
    assert [error for error in errors if not issubclass(error, BabelensError)] == []


KNOWN = ["adam_beta1", "learning_rate", "max_steps", "num_train_epochs", "per_device_train_batch_size", "weight_decay"]


def test_the_nearest_comes_first():
    for given, first in (("lr", "learning_rate"), ("epochs", "num_train_epochs"), ("max_step", "max_steps")):
        ordered = nearest_first(given, KNOWN)
        assert ordered[0] == first and sorted(ordered) == KNOWN
