"""Key phrases against rake-nltk, and a sum worked out by hand."""

import re
import string

import pytest
from rake_nltk import Rake
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from tlm_ray.retrieval.methods.rake import key_phrases

TEXTS = [
    "Compatibility of systems of linear constraints over the set of natural numbers. Criteria of compatibility of a "
    "system of linear Diophantine equations, strict inequations, and nonstrict inequations are considered.",
    "A fast fast parser of a fast grammar; the parser, the GRAMMAR and x_1.",
    "one",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("phrases", [1, 3, 20])
def test_phrases_and_their_order_are_those_of_rake_nltk(text, phrases):
    rake = Rake(
        stopwords=ENGLISH_STOP_WORDS,
        punctuations=set(string.punctuation),
        sentence_tokenizer=lambda text: [text],
        word_tokenizer=re.compile(r"\w+|[^\w\s]+").findall,
    )
    rake.extract_keywords_from_text(text)
    assert key_phrases(text, phrases=phrases) == (" ".join(rake.get_ranked_phrases()[:phrases]) or text)


def test_a_score_worked_out_by_hand():
    # deep: 2 + 1 over 2 uses, net: 2; so "deep net" has 1.5 + 2 and "deep" 1.5
    assert key_phrases("deep net, deep", phrases=2) == "deep net deep"
    assert key_phrases("deep, deep net", phrases=1) == "deep net"


@pytest.mark.parametrize("text", ["the of and", "", "?!"])
def test_a_text_without_phrases_stays_as_it_is(text):
    assert key_phrases(text) == text
