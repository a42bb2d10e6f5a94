"""C4's rules for the lines and pages of a corpus (Raffel et al. 2020, section 2.2, and its released code).

The rules run in the order of the released code. So a line that an early rule drops cannot drop its page by a later one:
a curly bracket in a line about JavaScript drops the line alone.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tlm_ray.corpus.cleaning.languages import probability_of
from tlm_ray.corpus.cleaning.settings import Cleaning
from tlm_ray.corpus.general.splitting import sentences_of

CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")
ENDS = (".", "?", "!", '"', "'")
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


class Line:
    """A line of a page, as the rules see it."""

    def __init__(self, text: str):
        self.words = text.split()  # counted with its citations
        self.text = CITATION.sub("", text.strip())

    @cached_property
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()


def long_word(line: Line, limits: Cleaning) -> bool:
    """Return whether a word has too many characters."""
    return any(len(word) > limits.letters for word in line.words)


def no_end(line: Line, limits: Cleaning) -> bool:
    """Return whether the line does not end as a sentence or quotation does; an ellipsis is no end."""
    return not line.text.endswith(ENDS) or line.text.endswith("...")


def few_words(line: Line, limits: Cleaning) -> bool:
    """Return whether the line has too few words."""
    return len(line.words) < limits.words


def lorem_ipsum(line: Line, limits: Cleaning) -> bool:
    """Return whether the line has placeholder text."""
    return "lorem ipsum" in line.lower


def javascript(line: Line, limits: Cleaning) -> bool:
    """Return whether the line is about JavaScript, mostly a request to enable it."""
    return "javascript" in line.lower


def curly_bracket(line: Line, limits: Cleaning) -> bool:
    """Return whether the line has a curly bracket, as program code does."""
    return "{" in line.text


def policy(line: Line, limits: Cleaning) -> bool:
    """Return whether the line is about terms of use or cookies."""
    return any(phrase in line.lower for phrase in POLICIES)


@dataclass(frozen=True)
class LineRule:
    """A rule for lines: what it drops, the line or its whole page."""

    drops: Callable[[Line, Cleaning], bool]
    whole_page: bool = False


LINE_RULES = (
    LineRule(long_word),
    LineRule(no_end),
    LineRule(few_words),
    LineRule(lorem_ipsum, whole_page=True),
    LineRule(javascript),
    LineRule(curly_bracket, whole_page=True),
    LineRule(policy),
)


def few_sentences(text: str, limits: Cleaning) -> bool:
    """Return whether a page has too few sentences; a sentence ends with its line."""
    return sum(len(sentences_of(line)) for line in text.split("\n")) < limits.sentences


def no_line(text: str, limits: Cleaning) -> bool:
    """Return whether no line of a page is left, whatever the fewest sentences."""
    return not text


def bad_words(text: str, limits: Cleaning) -> bool:
    """Return whether a page has one of the given words or phrases, between characters that are no letters or digits."""
    return bool(limits.bad_words) and bool(_any_of(limits.bad_words).search(text.lower()))


def language(text: str, limits: Cleaning) -> bool:
    """Return whether a page is not in the wanted language, or not surely."""
    return bool(limits.language) and probability_of(limits.language, text) < limits.certainty


PAGE_RULES: tuple[Callable[[str, Cleaning], bool], ...] = (few_sentences, no_line, bad_words, language)


def clean_page(text: str, limits: Cleaning, dropped: Counter[str]) -> str:
    """Return a page's kept lines, or "" if the page is dropped; counts in `dropped` what each rule dropped.

    Keys of the counts are "line: ..." and "page: ...", with the names of the rules' functions.
    """
    kept = []
    for one in text.splitlines():
        line = Line(one)
        rule = next((rule for rule in LINE_RULES if rule.drops(line, limits)), None)
        if rule is None:
            kept.append(line.text)
            continue
        dropped[f"{'page' if rule.whole_page else 'line'}: {rule.drops.__name__}"] += 1
        if rule.whole_page:
            return ""
    page = "\n".join(kept).strip()
    wrong = next((rule for rule in PAGE_RULES if rule(page, limits)), None)
    if wrong is None:
        return page
    dropped[f"page: {wrong.__name__}"] += 1
    return ""


@lru_cache(maxsize=1)
def _any_of(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?:\W|^)(?:{'|'.join(map(re.escape, words))})(?:\W|$)")
