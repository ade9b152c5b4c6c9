"""Analyses from the papers: each has a function that computes its numbers, and a function in `figures` that draws
them. `__init__.pyi` lists the public names; the extra `analysis` installs scikit-learn and matplotlib."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
