"""Tell the language of a text, with py3langid (Lui & Baldwin 2012), a naive Bayes model over byte n-grams.

C4 used langdetect, whose answer depends on a random seed.
"""

from functools import cache
from typing import Any

NEEDED = "py3langid"


def check_language(code: str) -> None:
    """Raise ValueError for a language that is not known, or if py3langid is not installed."""
    known = sorted(set(_identifier().labels))
    if code not in known:
        raise ValueError(f"cleaning language {code!r}: allowed are {', '.join(known)}, ISO 639-1 codes")


def probability_of(code: str, text: str) -> float:
    """Return the probability that a text is in a language."""
    return dict(_identifier().rank(text))[code]


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise ValueError(
            "cleaning language: needs py3langid, on every node; pip install 'tlm_ray[cleaning]'"
        ) from error
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
