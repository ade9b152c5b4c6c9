"""An extension of griffe, the reader of mkdocstrings: fields of configurations and of training arguments.

A class that is decorated with huggingface_hub's `strict` is read as the dataclass that it is, so that its fields are
shown with types and defaults. The `help` in a field's metadata becomes the field's description.
"""

import ast
from typing import Any

import griffe

STRICT = "huggingface_hub.dataclasses.strict"


class FieldsExtension(griffe.Extension):
    """`extensions: [docs/tools/griffe_fields.py]` among mkdocstrings' options."""

    def on_class_instance(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Marks strict configurations as dataclasses."""
        if any(decorator.callable_path == STRICT for decorator in cls.decorators):
            dataclass = griffe.ExprName("dataclasses.dataclass")
            cls.decorators.append(griffe.Decorator(dataclass, lineno=cls.lineno, endlineno=cls.lineno))

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Takes description and default of a field out of `field(default=..., metadata={"help": ...})`."""
        if attr.docstring is not None or not isinstance(attr.value, griffe.ExprCall):
            return
        given = {each.name: each.value for each in attr.value.arguments if isinstance(each, griffe.ExprKeyword)}
        if text := _help(given.get("metadata")):
            attr.docstring = griffe.Docstring(text, parent=attr)
            attr.value = given.get("default", attr.value)


def _help(metadata: Any) -> str | None:
    """The `help` of a field's metadata, where they are constants."""
    try:
        return ast.literal_eval(str(metadata)).get("help")
    except (AttributeError, SyntaxError, ValueError):
        return None
