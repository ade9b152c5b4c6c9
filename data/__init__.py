"""Captioned images and translations: loaders, the views that tasks train on, and the emoji benchmark.

The public names stand in `__init__.pyi`; each is imported when it is first used, because `datasets` and Arrow take a
while to load.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
