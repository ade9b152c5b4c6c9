"""The layers of a tower, whatever its kind: the blocks of a transformer, or the blocks or stages of a convolutional
network, in their order."""

from collections.abc import Collection

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

_ATTENTION = ("attention", "attn")


def tower_layers(tower: nn.Module) -> list[list[nn.Module]]:
    """Returns the layers of a tower from the bottom to the top, each as a list of modules; none if it has no list of
    layers.

    They are the outermost list of modules that holds the most weights: the layers of BERT, T5 and ViT, the blocks of
    an EfficientNet, the stages of Swin, ConvNeXt and ResNet. Some towers have several lists of the same length side by
    side, such as one of attentions and one of feed-forward layers.
    """
    lists: dict[str, list[nn.Module]] = {}
    for name, module in tower.named_modules():
        is_inside = any(name.startswith(f"{outer}.") for outer in lists)
        if isinstance(module, nn.ModuleList | nn.Sequential) and not is_inside and _size(module):
            lists[name] = [entry for entry in module if _size(entry)]
    if not lists:
        return []
    largest = max(lists, key=lambda name: sum(map(_size, lists[name])))
    parent, count = largest.rpartition(".")[0], len(lists[largest])
    beside = [
        entries for name, entries in lists.items() if name.rpartition(".")[0] == parent and len(entries) == count
    ]
    return [list(layer) for layer in zip(*beside, strict=True)]


def layer_depths(tower: nn.Module) -> dict[str, int]:
    """Returns the depth of each parameter of a tower, by its name: 0 in the top layer and what is above it, such as a
    final normalization, 1 in the layer below, and so on; embeddings are below all layers."""
    layers = tower_layers(tower)
    of_layers = {
        parameter: len(layers) - 1 - index
        for index, layer in enumerate(layers)
        for module in layer
        for parameter in module.parameters()
    }
    embeddings = {
        parameter
        for module in tower.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters()
    }
    depths, has_layers_below = {}, False
    for name, parameter in tower.named_parameters():
        has_layers_below = has_layers_below or parameter in of_layers
        outside = 0 if has_layers_below and parameter not in embeddings else len(layers)
        depths[name] = of_layers.get(parameter, outside)
    return depths


def adapted_modules(tower: nn.Module, indices: Collection[int] | None = None) -> list[str]:
    """Returns the names of the modules that LoRA adapts by default: the projections of the attention, or the pointwise
    convolutions of a convolutional tower, if each of its layers has one; otherwise none.

    Args:
        tower: the tower.
        indices: the layers whose modules are named, 0 for the lowest; by default all.
    """
    within = [{part for module in layer for part in module.modules()} for layer in tower_layers(tower)]
    names = {module: name for name, module in tower.named_modules()}
    pointwise = [[names[part] for part in names if part in layer and _is_pointwise(part)] for layer in within]
    attention = [[name for name in layer if any(word in name.lower() for word in _ATTENTION)] for layer in pointwise]
    if not any(attention) and not all(pointwise):
        return []
    chosen = attention if any(attention) else pointwise
    return [name for index, layer in enumerate(chosen) if indices is None or index in indices for name in layer]


def _is_pointwise(module: nn.Module) -> bool:
    """Whether a module is a linear map of the features at each position."""
    if isinstance(module, nn.Conv2d):
        return module.kernel_size == (1, 1) and module.groups == 1
    # torch's own attention reads the weights of its output projection, and does not call it.
    return isinstance(module, nn.Linear) and not isinstance(module, NonDynamicallyQuantizableLinear)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
