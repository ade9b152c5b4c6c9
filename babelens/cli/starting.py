"""What a command does when its arguments have been checked, before its work."""

import gc

from .. import quiet_start


def begin_work() -> None:
    """Registers the models of babelens with transformers, as `import babelens` does in other programs.

    A command calls it before it imports torch, transformers and datasets. Those imports make a million objects, of
    which none is garbage: to look for some among them takes a second, and one and a half at the end of the process.
    """
    gc.disable()
    try:
        from ..registry import register

        register()
    finally:
        gc.enable()
    if quiet_start.is_command_line():
        gc.freeze()
    _hide_loading_bars()
    quiet_start.raise_interrupts()


def _hide_loading_bars() -> None:
    """Hides the progress bar that transformers shows for every model that it loads; downloads keep theirs."""
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    downloads_have_bars = not are_progress_bars_disabled()
    disable_progress_bar()
    if downloads_have_bars:
        enable_progress_bars()
