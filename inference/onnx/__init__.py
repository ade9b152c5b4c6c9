"""Dual encoders as ONNX graphs, written from a model (`export`, `immich`) and run by onnxruntime (`model`)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
