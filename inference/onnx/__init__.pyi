from .export import Exported as Exported, export_onnx as export_onnx
