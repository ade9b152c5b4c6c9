"""Choosing some rows of many."""


def evenly_spread(size: int, count: int) -> list[int]:
    """The indices of `count` rows among `size`, at even distances from the first on; all when there are fewer.

    >>> evenly_spread(10, 4)
    [0, 2, 5, 7]
    """
    count = min(count, size)
    return [index * size // count for index in range(count)]
