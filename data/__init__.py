"""Captioned images and translations: loaders, the views that tasks train on, and the emoji benchmark.

The public names are in `__init__.pyi`; each is imported on first use, because `datasets` and Arrow take a while to
load.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
