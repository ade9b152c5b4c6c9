"""Analyses of what a model has learned: each is a function that computes numbers, and a figure of them in `figures/`.

The public names stand in `__init__.pyi`; each is imported when it is first used. scikit-learn, matplotlib and
umap-learn are the extra `analysis`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
