"""Which columns of a task's files are its texts and labels: those that were named, or those that their names say."""

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
    """What a task's columns are called in its files."""

    text: str = ""
    """the column of texts, "" to go by names"""
    label: str = ""
    """the column of labels, "" to go by names"""
    text_pair: str = ""
    """the column of second texts; "" for text_pair where there is one, else none"""

    @property
    def usual(self) -> bool:
        """Whether they are called as in a task of ours."""
        return (self.text, self.label) == ("text", "label") and self.text_pair in ("", "text_pair")

    @property
    def words(self) -> str:
        """What they are, in words."""
        return ", ".join(f"{name} is the column {column!r}" for name, column in asdict(self).items() if column)

    def found(self, table: pa.Table, uri: str) -> "Columns":
        """Return the columns of a file.

        Those that are not named are text and label, or the one column with a name like these; of two columns the one
        that is left, or the one with the longer texts. ValueError names the columns that are there and what to give.
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
    """Return the column of a name, or the only one with a name like it; "" for none, or several."""
    if name in columns:
        return name
    found = [column for column in columns if column.strip().lower() in ALIKE[name] and column not in taken]
    return found[0] if len(found) == 1 else ""


def _of_two(table: pa.Table, text: str, label: str) -> tuple[str, str]:
    """Fill in what two columns leave no doubt about."""
    if len(table.column_names) != 2 or (text and label):
        return text, label
    first, second = table.column_names
    if text or label:
        other = second if first in (text, label) else first
        return text or other, label or other
    longer = max((first, second), key=lambda column: sum(map(len, map(str, table[column].to_pylist()))))
    return longer, second if longer == first else first
