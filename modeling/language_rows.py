"""Which rows of a batch are in which language: MLA's layers compute each row with the parameters of its language."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class RowsByLanguage:
    """Which rows of a batch are in which language; `None` stands for the native one.

    Args:
        languages: language of each row.
    """

    def __init__(self, languages: Sequence[str | None]) -> None:
        self.count = len(languages)
        self.groups: dict[str | None, list[int]] = {}
        for row, language in enumerate(languages):
            self.groups.setdefault(language, []).append(row)
        self._positions: dict[torch.device, tuple[list[Tensor], Tensor]] = {}

    @classmethod
    def all_in(cls, language: str | None, count: int) -> "RowsByLanguage":
        """Returns the assignment of `count` rows to a single language."""
        rows = cls([language])
        rows.count = count  # may be symbolic, in a graph for batches of any size
        return rows

    @property
    def only(self) -> bool:
        """Whether all rows are in one language."""
        return len(self.groups) == 1

    def positions(self, device: torch.device) -> tuple[list[Tensor], Tensor]:
        """Returns the indices of each group's rows, and the permutation that restores the order of the concatenated
        groups."""
        if device not in self._positions:
            groups = [torch.tensor(rows, device=device) for rows in self.groups.values()]
            self._positions[device] = groups, torch.argsort(torch.cat(groups))
        return self._positions[device]

    def map(self, function: Callable[[str | None, Tensor], Tensor], rows: Tensor) -> Tensor:
        """Applies a function to the rows of each language, and puts the results back in order. [N, …] -> [N, …]

        Args:
            function: maps a language and its rows to as many rows.
            rows: all rows of the batch.
        """
        if rows.shape[0] != self.count:
            raise ValueError(f"there are languages for {self.count} rows, but the batch has {rows.shape[0]}")
        if self.only:
            return function(next(iter(self.groups)), rows)
        groups, order = self.positions(rows.device)
        parts = [function(language, rows[group]) for language, group in zip(self.groups, groups, strict=True)]
        return torch.cat(parts)[order]

    def by_vocabulary(self) -> "RowsByLanguage":
        """Returns an assignment that distinguishes as many languages as there are vocabularies."""
        return self

    def ids_of(self, language: str | None, input_ids: Tensor, rows: Tensor) -> Tensor:
        """Returns the token ids of a language's rows."""
        return input_ids[rows]


class MasksByLanguage:
    """Does what `RowsByLanguage` does in an exported graph, which takes the languages as an input.

    The function of every language is applied to all rows, and each row keeps the result for its own language.

    Args:
        languages: languages, in the order of their ids.
        ids ([N]): language id of each row; not checked.
    """

    def __init__(self, languages: Sequence[str | None], ids: Tensor) -> None:
        self.languages, self.ids = list(languages), ids

    def map(self, function: Callable[[str | None, Tensor], Tensor], rows: Tensor) -> Tensor:
        """As `RowsByLanguage.map`."""
        found = function(self.languages[0], rows)
        for language in self.languages[1:]:
            is_mine = self._is_in(language).reshape(-1, *[1] * (found.dim() - 1))
            found = torch.where(is_mine, function(language, rows), found)
        return found

    def by_vocabulary(self) -> "MasksByLanguage":
        """As `RowsByLanguage.by_vocabulary`: all acquired languages share one vocabulary."""
        return MasksByLanguage(self.languages[:2], self.ids.clamp(max=1))

    def ids_of(self, language: str | None, input_ids: Tensor, rows: Tensor) -> Tensor:
        """Returns the token ids of a language's rows; in other rows 0, which every vocabulary has."""
        return torch.where(self._is_in(language)[:, None], input_ids, 0)

    def _is_in(self, language: str | None) -> Tensor:
        return self.ids == self.languages.index(language)


BatchLanguages = RowsByLanguage | MasksByLanguage
