"""Indexes of embeddings in LanceDB: exact or approximate, in folders or object stores, with metadata filters."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
