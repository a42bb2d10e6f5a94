"""Extract English prose from docstrings of Python source: paragraphs and items, without code, markup or types."""

import ast
import re
import warnings
from collections.abc import Iterator

PASSAGE_WORDS = (8, 250)  # fewest and most words of a passage
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
DIRECTIVE = re.compile(
    r"\s*\.\. (?:(admonition|attention|caution|danger|deprecated|hint|important"
    r"|note|seealso|tip|version\w+|warning)|[\w-]+)::\s*[\d.]*(.*)"
)
RULE = re.compile(r"\s*[-=+| :~^\"'*#.]{3,}")
BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)]|\.\. \[\w+\])\s+")
SECTION = re.compile(r"\s*[A-Z]\w*(?: \w+)?:")
SPHINX_ITEM = re.compile(r"\s*:(\w+)(?:\s[^:]*?([\w*]+))?:(?:\s+(.*))?")
NUMPY_ITEM = re.compile(r"\s*(\*{0,2}\w[\w.]*(?:, \*{0,2}\w[\w.]*)*)\s+:(?:\s.*)?")
GOOGLE_ITEM = re.compile(r"\s*[-*]?\s?[`*]*(\w[\w.]*)[`*]*(\s+\(.*?\))?:(?:\s+(.*))?")
INLINE = (
    (re.compile(r":[\w:-]+:`(?:~[\w.]*\.|_\w+\.|\.)?([^`<]*?)(?:\s*<[^>`]*>)?`"), r"\1"),  # roles
    (re.compile(r"\[([^\[\]]+)\]\([^)\s]*\)"), r"\1"),  # links
    (re.compile(r"<?\bhttps?://[^\s>]*>?| ?\[#?\w+\]_"), ""),  # citations
    (re.compile(r"\[`+[~.]*([^`]+)`+\]|`+[~.]*([^`]*)`+_?"), r"\1\2"),
    (re.compile(r"\*\*([^*]+)\*\*|(?<!\w)\*(\w[^*]*)\*(?!\w)"), r"\1\2"),
)
FREQUENT = "a an and are as at be by can for from has if in is it not of on or that the this to"
FUNCTION_WORDS = frozenset(FREQUENT.split())
NOT_LETTERS = bytes(byte for byte in range(256) if not bytes([byte]).isalpha())  # ASCII


def find_docstrings(source: bytes) -> list[str]:
    """Return a source's cleaned docstrings, in order; SyntaxError or ValueError if it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        module = ast.parse(source)
    return [found for node in _documented(module) if (found := ast.get_docstring(node))]


def _documented(node: ast.AST) -> Iterator[DOCUMENTED]:
    """Yield the nodes that can have a docstring, without visiting expressions, which are most of the nodes."""
    if isinstance(node, DOCUMENTED):
        yield node
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        for child in getattr(node, field, ()):
            if hasattr(child, "body") or hasattr(child, "cases"):
                yield from _documented(child)


def split_docstring(docstring: str) -> list[str]:
    """Split a docstring into passages of prose: paragraphs, and items such as a parameter's description.

    No code, headings, types or inline markup, nothing under 8 words; over 250 words it is cut.
    """
    passages = []
    for paragraph in _paragraphs(list(_without_code(docstring.split("\n")))):
        words = _plain(paragraph).split()
        for start in range(0, len(words), PASSAGE_WORDS[1]):
            if _is_prose(piece := words[start : start + PASSAGE_WORDS[1]]):
                passages.append(" ".join(piece))
    return passages


def _without_code(lines: list[str]) -> Iterator[str]:
    """Yield the lines; those of a doctest, a fence or a literal block are empty."""
    fence, doctest, block = False, False, -1  # block: indentation beyond which lines are a literal block
    for line in lines:
        stripped = line.lstrip()
        doctest = bool(stripped) and (doctest or stripped.startswith(">>>"))
        block = -1 if stripped and _indent(line) <= block else block
        fence ^= (mark := stripped.startswith("```"))
        if fence or mark or doctest or block >= 0:
            line = ""
        elif match := DIRECTIVE.match(line):
            block = -1 if match[1] else _indent(line)
            line = match[2] if match[1] else ""
        elif line.endswith("::"):
            block = _indent(line)
            line = line[:-1]
        yield line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Yield groups of lines that belong together; each item of a section starts a new group."""
    current: list[str] = []
    last = 0
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        indent, item = _indent(line), _item(line, after)
        if not line.strip() or item is not None or (indent < last and not BULLET.match(line)):
            yield " ".join(current)
            current = []
        current.append(BULLET.sub("", line).strip() if item is None else item)
        if RULE.fullmatch(line):
            current = []  # and the heading or the table row above it
        last = indent
    yield " ".join(current)


def _item(line: str, after: str) -> str | None:
    """Return the first line of a passage that starts here ("name: description", without type); None if none does."""
    if ":" not in line or SECTION.fullmatch(line):
        return "" if ":" in line else None
    if match := SPHINX_ITEM.fullmatch(line):
        kind, name, text = match.groups(default="")
        return "" if "type" in kind else f"{name}: {text}" if name else text
    hangs = _indent(after) > _indent(line)
    if hangs and (match := NUMPY_ITEM.fullmatch(line)):
        return f"{match[1]}:"
    if (match := GOOGLE_ITEM.fullmatch(line)) and (_indent(line) or (hangs and match[2])):
        return f"{match[1]}: {match[3] or ''}"
    return None


def _plain(text: str) -> str:
    if any(mark in text for mark in ("`", "*", "[", "http")):
        for pattern, plain in INLINE:
            text = pattern.sub(plain, text)
    return text.encode(errors="replace").decode()  # a lone surrogate is legal in a string literal


def _is_prose(words: list[str]) -> bool:
    """Return whether words are English: enough of them, two function words, 70 % letters."""
    if len(words) < PASSAGE_WORDS[0] or len(FUNCTION_WORDS.intersection(words)) < 2:
        return False
    return len(letters("".join(words))) >= 0.7 * len("".join(words))


def letters(text: str) -> bytes:
    """Return a text's ASCII letters in lower case; texts with equal letters count as near duplicates."""
    return text.lower().encode().translate(None, NOT_LETTERS)
