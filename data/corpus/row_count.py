"""What became of the rows of a source: read, or left out for a reason. A row that is refused raises an error."""

import logging
from collections import Counter
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

_NAMED = 10  # rows that the log names for each reason


@dataclass
class RowCount:
    """Counts the rows of a source. Each is read or left out, so that `total` is their number.

    Args:
        source: what the log calls it.
        read: the rows that were read.
        left_out: by reason, the rows that were left out.
    """

    source: str
    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    _named: dict[str, list[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.read + self.left_out.total()

    @property
    def unasked(self) -> bool:
        """Whether rows were left out that nobody asked to leave out."""
        return bool(self._named)

    def leave_out(self, reason: str, row: str | None = None) -> None:
        """Counts a row.

        Args:
            reason: such as `with an empty text`.
            row: what the log calls it; None for a row that the caller asked to leave out.
        """
        self.left_out[reason] += 1
        if row is not None:
            named = self._named.setdefault(reason, [])
            if len(named) < _NAMED:
                named.append(row.removeprefix(f"{self.source} "))

    def report(self) -> None:
        """Logs the counts in one line: a warning if rows were left out that nobody asked to leave out."""
        if not +self.left_out:
            return
        parts = [f"{count:,} {reason}{self._rows(reason)}" for reason, count in (+self.left_out).most_common()]
        level = logging.WARNING if self.unasked else logging.INFO
        logger.log(
            level,
            "%s: read %s of %s rows; left out %s",
            *(self.source, f"{self.read:,}", f"{self.total:,}"),
            "; ".join(parts),
        )

    def _rows(self, reason: str) -> str:
        named = self._named.get(reason, [])
        more = f", and {self.left_out[reason] - len(named):,} more" if self.left_out[reason] > len(named) else ""
        return f" ({', '.join(named)}{more})" if named else ""
