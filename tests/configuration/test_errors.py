"""Every error class of the package descends from `BabelensError`, so that callers can catch them all."""

import importlib
import pkgutil

import babelens
from babelens.utils import errors as errors_module
from babelens.utils.errors import BabelensError


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
