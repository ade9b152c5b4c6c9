"""Parquet files that are read in batches, and may be larger than memory."""

from pathlib import Path
from typing import IO

import pyarrow.parquet as pq


def parquet_file(file: Path | IO[bytes]) -> pq.ParquetFile:
    """A parquet file to be read in batches. By its own default, pyarrow holds all that it has read until the end."""
    return pq.ParquetFile(file, pre_buffer=False)
