"""Words from Arrow's buffers, against Python's own on lower-cased text."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import words

from tlm_ray.retrieval.engine.analyzer import Analyzer
from tlm_ray.retrieval.engine.bags import BagReader
from tlm_ray.retrieval.engine.lexicon import Lexicon, as_strings

# what breaks tokenisers: sigmas, the dotted I, marks, joiners, capitals whose lower case has more bytes, long words
PIECES = [
    *("Σ", "ΑΣ", "σΣς", "İ", "I\u0307", "e\u0301", "Ⱥ", "ẞ", "語", "👩\u200d🔬", "٣", "Ⅷ", "éééé", "éééééé"),
    *("日本語", "ท", "ที่", "\uff71", "\U00020000"),
    *("_", "x_1", "\x00", "'", "·", "\u00ad", " ", "\n", ".", "a", "B"),
    *("abcdefgh", "abcdefghi", "abcdefghj", "ABCDEFGHI" * 3),
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)


def read(made, texts):
    """Return each text's words as the lexicon reads them."""
    numbers, lengths = made.read(as_strings(texts))
    names = made.words().to_pylist()
    ends = np.cumsum(lengths)
    return [[names[n] for n in numbers[a:b]] for a, b in zip(ends - lengths, ends, strict=True)]


@settings(max_examples=500, deadline=None)
@given(st.lists(TEXTS | st.none(), max_size=6))
def test_words_are_those_of_the_lower_cased_text(texts):
    assert read(Lexicon(), texts) == [words(text) for text in texts]


def test_every_code_point_is_read_as_python_reads_it():
    points = [chr(p) for p in range(0x110000) if not 0xD800 <= p < 0xE000]
    texts = [between.join(points[i : i + 500]) for i in range(0, len(points), 500) for between in ("a", "")]
    assert read(Lexicon(), texts) == [words(text) for text in texts]


def test_lower_case_stays_as_it_is():
    points = "".join(chr(p) for p in range(0x110000) if not 0xD800 <= p < 0xE000)
    assert points.lower().lower() == points.lower()  # what Python lower-cased goes through the table again


def test_words_are_numbered_once_in_order_of_appearance_however_they_arrive():
    texts = [f"word{i % 997} Word{i} {'long' * (i % 7)}{i % 89}" for i in range(40_000)]
    whole, parts = Lexicon(), Lexicon()
    numbers, _ = whole.read(as_strings(texts))
    pieces = [parts.read(as_strings(texts[i : i + 1_111]))[0].copy() for i in range(0, len(texts), 1_111)]
    assert np.concatenate(pieces).tolist() == numbers.tolist()
    assert whole.words().to_pylist() == list(dict.fromkeys(word for text in texts for word in words(text)))
    assert whole.words(len(whole) - 2).to_pylist() == whole.words().to_pylist()[-2:]


def test_long_words_of_one_beginning_are_told_apart():
    texts = [f"a common beginning {'x' * 9}{i}" for i in range(3_000)] * 2
    made = Lexicon()
    assert read(made, texts) == [words(text) for text in texts]
    assert len(made) == 3 + 3_000


@pytest.mark.parametrize("size", [10, 300_000, 3_000_000])
def test_one_text_of_any_size_fits(size):
    text = " ".join(str(i) for i in range(size // 10)) + " " + "w" * size
    assert read(Lexicon(), ["before", text, "after"])[1] == words(text)


def test_slices_and_both_widths_of_arrow_strings_are_read():
    texts = ["a b", None, "", "c Σ d", "e"]
    for kind in (pa.string(), pa.large_string()):
        array = pa.array([None, "skipped", *texts], kind)[2:]
        assert read(Lexicon(), array) == [words(text) for text in texts]
    assert read(Lexicon(), pa.array([None, None])) == [[], []]


def test_chunks_are_put_together_with_offsets_of_64_bits():
    together = as_strings(pa.chunked_array([["a b"], ["c", None]]))
    assert together.type == pa.large_string() and together.to_pylist() == ["a b", "c", None]


def test_bytes_that_are_no_utf8_are_refused():
    broken = pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())
    with pytest.raises(ValueError, match="UTF8"):
        Lexicon().read(broken)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS | st.none(), max_size=5), st.sampled_from([None, "english"]), st.sampled_from([None, "english"]))
def test_bags_count_the_analyzers_terms(texts, stopwords, stemmer):
    analyzer = Analyzer(stopwords, stemmer)
    texts = [f"{text or ''} the Running dogs run" for text in texts]
    reader = BagReader(analyzer)
    bags = reader.read(texts)
    names, ends = reader.terms().to_pylist(), np.cumsum(bags.sizes)
    for text, a, b, length in zip(texts, ends - bags.sizes, ends, bags.lengths, strict=True):
        terms = analyzer.terms(text)
        expected = {term: terms.count(term) for term in dict.fromkeys(terms)}
        assert {names[t]: c for t, c in zip(bags.terms[a:b], bags.counts()[a:b], strict=True)} == expected
        assert length == len(terms)


@pytest.mark.parametrize("count", [1, 254, 255, 256, 70_000])
def test_a_term_may_occur_any_number_of_times(count):
    reader = BagReader(Analyzer())
    bags = reader.read(["x y", "a " * count + "b", "b " * 300])
    assert bags.counts().tolist() == [1, 1, count, 1, 300]
    assert bags.lengths.tolist() == [2, count + 1, 300]


def test_bags_do_not_depend_on_how_much_is_read_at_once(monkeypatch):
    texts = [f"w{i % 13} w{i % 7} w{i}" for i in range(500)]
    whole = BagReader(Analyzer()).read(texts)
    monkeypatch.setattr("tlm_ray.retrieval.engine.bags.CHUNK_BYTES", 64)
    parts = BagReader(Analyzer()).read(texts)
    assert all(np.array_equal(one, other) for one, other in zip(whole, parts, strict=True))
