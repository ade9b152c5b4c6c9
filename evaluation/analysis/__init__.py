"""The figures of the papers: each analysis is a function that computes numbers, and one of `figures` that draws them.

The public names stand in `__init__.pyi`; each is imported when it is first used. scikit-learn and matplotlib are the
extra `analysis`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
