"""A page as a reader sees it: its tables, its sections, and what it would run or fetch."""

from html.parser import HTMLParser

VOID = {"meta", "input", "br", "hr", "link", "img"}


class Page(HTMLParser):
    """A page, parsed; AssertionError where an element is closed that is not open."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.sections: list[str] = []
        self.tables: dict[str, list[list[list[str]]]] = {}
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self.sections.append(dict(attrs)["id"])
        if tag == "table":
            self._own(self.tables).append([])
        if tag == "tr":
            self._own(self.tables)[-1].append([])
        if tag in ("td", "th"):
            self._own(self.tables)[-1][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        self.texts.setdefault(inside, []).append(data)
        if {"td", "th"} & set(self.open):
            self._own(self.tables)[-1][-1][-1] += data

    def _own(self, by_section):
        return by_section.setdefault(self.sections[-1] if self.sections else "", [])

    def text(self, tag):
        return [text.strip() for text in self.texts.get(tag, []) if text.strip()]
