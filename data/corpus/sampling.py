"""Selects some of many rows."""


def evenly_spread(size: int, count: int) -> list[int]:
    """Returns the indices of `count` evenly spaced rows among `size`, starting at the first; all if there are fewer.

    >>> evenly_spread(10, 4)
    [0, 2, 5, 7]
    """
    count = min(count, size)
    return [index * size // count for index in range(count)]
