"""The work of the commands, one module each.

These modules import torch, transformers and datasets, which takes seconds. A command imports its own when its
arguments have been checked. Importing any of them first imports this package, which registers the models of babelens
with transformers, as `import babelens` does in other programs; by then it is known how busy the
machine is, which decides about threads.
"""

from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
from transformers.utils.logging import disable_progress_bar

from ... import quiet_start
from ...registry import register
from ..threads import take_fair_share


def _hide_loading_bars() -> None:
    """Hides the progress bar that transformers shows for every model that it loads; downloads keep theirs."""
    downloads_have_bars = not are_progress_bars_disabled()
    disable_progress_bar()
    if downloads_have_bars:
        enable_progress_bars()


register()
_hide_loading_bars()
take_fair_share()
quiet_start.raise_interrupts()
