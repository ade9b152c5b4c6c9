"""A page and a JSON API to search the images of a folder, for `babelens serve`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
