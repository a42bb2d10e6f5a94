"""Terms of texts and their statistics, against regular expressions, bm25s and plain counting."""

import pickle
from collections import Counter

import bm25s
import pyarrow as pa
import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import CORPORA, REAL, TEXTS, words

from tlm_ray import storage
from tlm_ray.retrieval import Analyzer, Statistics, index_passages, search


@settings(max_examples=200, deadline=None)
@given(st.text() | TEXTS)
def test_terms_are_lower_cased_unicode_words(text):
    assert Analyzer().terms(text) == words(text)


@pytest.mark.parametrize(("stopwords", "stemmer"), [("english", None), (None, "english"), ("english", "english")])
def test_stop_words_and_stems_are_those_of_bm25s(stopwords, stemmer):
    analyzer = Analyzer(stopwords, stemmer)
    expected = bm25s.tokenize(
        REAL[:500],
        token_pattern=r"\w+",
        stopwords="en" if stopwords else None,
        stemmer=Stemmer.Stemmer(stemmer) if stemmer else None,
        return_ids=False,
        show_progress=False,
    )
    assert [analyzer.terms(text) for text in REAL[:500]] == expected
    assert pickle.loads(pickle.dumps(analyzer)) == analyzer
    assert pickle.loads(pickle.dumps(analyzer)).terms("The running dogs") == analyzer.terms("The running dogs")


def test_an_analyzer_works_on_passages_and_queries_alike():
    texts = ["Dogs were running", "the cat"]
    found = search(index_passages(texts, analyzer=Analyzer("english", "english")), ["a dog runs", "the"], k=1)
    assert found.ids.tolist() == [[0], [-1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stopwords": "klingon"}, "stopwords 'klingon': allowed are None, 'english'"),
        ({"stemmer": "klingon"}, "stemmer 'klingon': allowed are None, .*english"),
    ],
)
def test_unknown_analyzers_list_the_known_ones(options, message):
    with pytest.raises(ValueError, match=message):
        Analyzer(**options)


@settings(max_examples=100, deadline=None)
@given(CORPORA, CORPORA, CORPORA)
def test_statistics_add_up(one, two, three):
    a, b, c = (Statistics.collect(texts, Analyzer()) for texts in (one, two, three))
    assert Statistics.merge([a, b]) == Statistics.collect(one + two, Analyzer()) == Statistics.merge([b, a])
    assert Statistics.merge([Statistics.merge([a, b]), c]) == Statistics.merge([a, Statistics.merge([b, c])])
    counted = Counter(word for text in one for word in set(words(text)))
    assert (a.passages, a.terms) == (len(one), sum(len(words(text)) for text in one))
    assert a.frequencies.to_pydict() == {"term": sorted(counted), "frequency": [counted[t] for t in sorted(counted)]}
    assert a.of_terms(pa.array([*counted, "unknown"])).tolist() == [*counted.values(), 0]


def test_statistics_survive_a_file(tmp_path):
    statistics = Statistics.collect([*REAL, None], Analyzer())
    storage.write_table(str(tmp_path / "statistics.arrow"), statistics.to_table())
    table = storage.read_table(str(tmp_path / "statistics.arrow"))
    assert Statistics.from_table(table) == statistics
    assert table["term"].to_pylist() == sorted({word for text in REAL for word in words(text)})
    none = Statistics.merge([])
    assert (none.passages, none.terms, Statistics.from_table(none.to_table())) == (0, 0, none)
