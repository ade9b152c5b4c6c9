"""Memory that the process of a command keeps, instead of returning it to the system after every layer of a model.

glibc takes each buffer of more than some megabytes from the system, and returns it when it is freed. A convolutional
tower frees such buffers at every layer, so that the system clears the same memory again and again: this took more than
half of the time of an EfficientNet. Another C library has no `mallopt`, and its own ways.
https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

import ctypes
import os
import sys

# From malloc.h of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 2**30  # bytes: larger buffers, and more unused memory than this, are still returned


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory of up to 1 GiB; returns whether it does.

    Environment variables that state how glibc allocates (`MALLOC_…`, `GLIBC_TUNABLES`) take precedence. A program that
    uses babelens as a library has the same effect by `MALLOC_MMAP_THRESHOLD_=1073741824
    MALLOC_TRIM_THRESHOLD_=1073741824`.
    """
    is_stated = any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
    if not sys.platform.startswith("linux") or is_stated:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and all(mallopt(each, _KEPT) == 1 for each in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
