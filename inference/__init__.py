"""Trained models at work: embeddings, search, reranking, translation, regions and features of images."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
