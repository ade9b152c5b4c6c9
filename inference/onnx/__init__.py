"""Dual encoders as ONNX graphs: written from a trained model, and run by onnxruntime, in Python or in a browser.

    export  writes both towers, at one or several precisions, with the files that prepare their inputs
    model   the layout of an exported folder, and its graphs as the model of an `Embedder`
    immich  writes the layout of Immich's server

The public names are in `__init__.pyi`; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
