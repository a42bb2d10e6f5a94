"""Choose the columns of text and label in a task's files: the named ones, or those with a usual name."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

TEXTS = (
    "text", "sentence", "content", "review", "comment", "body", "document", "description", "message", "question",
)  # fmt: skip
LABELS = (
    "label", "labels", "category", "class", "sentiment", "target", "intent", "topic", "tag", "rating", "stars", "score",
)  # fmt: skip
ALIKE = {"text": TEXTS, "label": LABELS}
FLAGS = {"text": "--text", "label": "--label", "text_pair": "--pair"}


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of a task's columns in its files."""

    text: str = ""
    """column of texts; "" to find it by name"""
    label: str = ""
    """column of labels; "" to find it by name"""
    text_pair: str = ""
    """column of second texts; "" for text_pair if it exists, else none"""

    @property
    def usual(self) -> bool:
        """Whether they have the default names: text, label and, for pairs, text_pair."""
        return (self.text, self.label) == ("text", "label") and self.text_pair in ("", "text_pair")

    @property
    def words(self) -> str:
        """The chosen columns, in words."""
        return ", ".join(f"{name} is the column {column!r}" for name, column in asdict(self).items() if column)

    def found(self, table: pa.Table, uri: str) -> "Columns":
        """Return the columns of a file; ValueError names its columns and the option to give.

        An unnamed column is text or label, or the only one with a similar name. In a file of two columns, it is the
        remaining one. If both are unnamed, text is the column with the longer values.
        """
        names = table.column_names
        for name, column in asdict(self).items():
            if column and column not in names:
                raise ValueError(
                    f"file {uri!r} has no column {column!r}, only {', '.join(names)}; a task has text, label and, for "
                    f"pairs, text_pair: say what its {name} is called ({FLAGS[name]})"
                )
        text = self.text or _alike("text", names, [self.label, self.text_pair])
        label = self.label or _alike("label", names, [text, self.text_pair])
        text, label = _of_two(table, text, label)
        for name, column in (("text", text), ("label", label)):
            if not column:
                raise ValueError(
                    f"file {uri!r} has no column {name!r}, only {', '.join(names)}; say which it is ({FLAGS[name]}), "
                    "or rename it"
                )
        pair = self.text_pair or ("text_pair" if "text_pair" in names else "")
        return Columns(text=text, label=label, text_pair=pair)


def _alike(name: str, columns: Sequence[str], taken: Sequence[str]) -> str:
    """Return the column of a name, or the only one with a similar name; "" for none or several."""
    if name in columns:
        return name
    found = [column for column in columns if column.strip().lower() in ALIKE[name] and column not in taken]
    return found[0] if len(found) == 1 else ""


def _of_two(table: pa.Table, text: str, label: str) -> tuple[str, str]:
    """Return text and label; if a file has just two columns, fill in the missing ones."""
    if len(table.column_names) != 2 or (text and label):
        return text, label
    first, second = table.column_names
    if text or label:
        other = second if first in (text, label) else first
        return text or other, label or other
    longer = max((first, second), key=lambda column: sum(map(len, map(str, table[column].to_pylist()))))
    return longer, second if longer == first else first
