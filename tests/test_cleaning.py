"""A corpus is cleaned by C4's rules, as datatrove does it; of repeated spans and near-duplicates the first is kept."""

import runpy
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import small_flow, small_recipe
from test_pages import ROOT

from tlm_ray import PassageStore, make
from tlm_ray.corpus.cleaning import Cleaning, c4
from tlm_ray.corpus.cleaning.job import clean_corpus, pages_of
from tlm_ray.corpus.cleaning.near import band_keys, bands_of, later_of_groups
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.corpus.general.splitting import sentences_of

PAPER, EARLIER = {"sentences": 3, "words": 5}, {"sentences": 5, "words": 3}  # the final paper's numbers, and the first

LINES = [
    "One sentence stands here first. Another one follows it.",
    "A third line of text ends it [1].",
    'A quotation of some words ends so "here."',
    "It ends 'like this one does'",
    "Is this a line with a question mark?",
    "What a line this is, with five words!",
    "no end of a sentence here",
    "Too short.",
    "Three words only.",
    "We use cookies on this page of ours.",
    "Please read our Privacy Policy before you go on.",
    "Please enable Javascript in your browser now.",
    "Please enable Javascript { now } in your browser.",
    "It goes on and on and on...",
    "A curly { bracket is in this line.",
    "A bracket { without an end",
    "Lorem ipsum dolor sit amet is text.",
    "Lorem Ipsum without an end",
    f"A word of {'a' * 1001} letters is here today.",
    f"A word of {'a' * 1000} letters is here today.",
    "This was said before [citation needed]. [edit]",
    "Five words with one[12] citation.",
    "[1] [2] [3] two words.",
    "",
    "   ",
    "   indented text has a line of its own.   ",
]


@pytest.fixture(scope="module")
def theirs():
    """datatrove's filter, which splits sentences as we do: its own splitter fetches a model."""
    from datatrove.data import Document
    from datatrove.pipeline.filters import c4_filters

    def clean(text, *, sentences, words):
        rules = c4_filters.C4QualityFilter(min_num_sentences=sentences, min_words_per_line=words)
        page = Document(text=text, id="0")
        return page.text if rules.filter(page) is True else ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(c4_filters, "split_into_sentences", lambda text, language: sentences_of(text))
        yield clean


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=9), st.sampled_from([PAPER, EARLIER]))
def test_pages_are_cleaned_as_by_datatrove(theirs, lines, limits):
    text = "\n".join(lines)
    assert c4.clean_page(text, Cleaning(**limits), Counter()) == theirs(text, **limits)


def test_bad_words_are_found_as_by_datatrove(tmp_path, monkeypatch):
    from datatrove.data import Document
    from datatrove.pipeline.filters import c4_filters

    words = ("darn", "what the heck", "c++")
    (tmp_path / "words").write_text("\n".join(words))
    monkeypatch.setattr(c4_filters, "cached_asset_path_or_download", lambda *_, **__: str(tmp_path / "words"))
    theirs, ours = c4_filters.C4BadWordsFilter(default_language="en"), Cleaning(bad_words=words)
    for text in (
        "Darn it.",
        "A darning needle.",
        "(what the HECK)",
        "what  the heck",
        "c++",
        "objective-c++x",
        "",
        "heck",
    ):
        kept = theirs.filter(Document(text=text, id="0")) is True
        assert c4.bad_words(text, ours) is not kept, text


def test_each_rule_counts_what_it_drops():
    counts = Counter()
    assert c4.clean_page("\n".join(LINES[:14]), Cleaning(), counts).count("\n") == 5
    assert counts == {
        "line: no_end": 2,
        "line: few_words": 2,
        "line: policy": 2,
        "line: javascript": 2,
    }
    assert not c4.clean_page("A page { of code is here.", Cleaning(), counts)
    assert not c4.clean_page("Lorem ipsum dolor sit amet is.", Cleaning(), counts)
    assert not c4.clean_page("One sentence is not enough here.", Cleaning(), counts)
    assert not c4.clean_page("no end", Cleaning(sentences=0), counts)
    pages = {name: count for name, count in counts.items() if name.startswith("page")}
    assert pages == dict.fromkeys(
        ("page: curly_bracket", "page: lorem_ipsum", "page: few_sentences", "page: no_line"), 1
    )


def test_pages_in_another_language_are_dropped():
    german = "Dieser Text ist auf Deutsch geschrieben worden. Er hat zwei Sätze. Und noch einen dritten Satz dazu."
    english = "This text has been written in English today. It has two sentences here. And here is a third one too."
    assert not c4.clean_page(german, Cleaning(language="en"), Counter())
    assert c4.clean_page(english, Cleaning(language="en"), Counter()) == english
    assert c4.clean_page(german, Cleaning(), Counter()) == german


def words(number):
    """Return a sentence of its own."""
    return f"Sentence number {number} is one of several."


def page(*numbers):
    return " ".join(map(words, numbers))


def corpus(folder: Path, files):
    folder.mkdir()
    for name, texts in files.items():
        pq.write_table(pa.table({"text": texts}), folder / f"{name}.parquet")
    return open_corpus(str(folder), column="text")


def cleaned(folder: Path, source, cleaning, **options):
    """Return the counts, and the cleaned pages with the names of their files."""
    counts = clean_corpus(str(folder), source, cleaning, workers=2, **options)
    rows = [row for file in pages_of(str(folder)).files for row in pq.read_table(file.uri).to_pylist()]
    return counts, [(row["source"], row["text"]) for row in rows]


def by_hand(pages, span):
    """Drop the sentences of each span that occurred before, in one pass over all pages."""
    seen, found = set(), []
    for text in pages:
        own = sentences_of(text)
        keep = [True] * len(own)
        for i in range(len(own) - span + 1):
            key = tuple(" ".join(one.lower().split()) for one in own[i : i + span])
            if key in seen:
                keep[i : i + span] = [False] * span
            seen.add(key)
        found.append([one for one, kept in zip(own, keep, strict=True) if kept])
    return found


@pytest.mark.usefixtures("alone")
def test_a_repeated_span_is_kept_once_for_any_number_of_buckets(tmp_path):
    random = np.random.default_rng(0)
    texts = [page(*(start + np.arange(length))) for start, length in random.integers(3, 30, (200, 2))]
    files = {"a": texts[:90], "b": texts[90:91], "c": texts[91:]}
    source = corpus(tmp_path / "corpus", files)
    made = []
    for buckets in (1, 2, 7, 16):
        folder = tmp_path / f"buckets-{buckets}"
        counts, pages = cleaned(folder, source, Cleaning(), buckets=buckets)
        made.append({file.name: file.read_bytes() for file in (folder / "pages").iterdir()})
    assert made[0] == made[1] == made[2] == made[3]
    left = [rows for rows in by_hand(texts, 3) if len(rows) >= 3]
    assert [sentences_of(text) for _, text in pages] == left
    assert counts["kept"] == len(left) < counts["pages"] == 200
    assert counts["page: repeated"] == 200 - len(left)


@pytest.mark.usefixtures("alone")
def test_lines_without_a_repeated_span_stay_as_they_are(tmp_path):
    second = f"{words(1)}  {words(2)}\n{words(3)} {words(7)}\n{words(8)}   {words(9)}"
    source = corpus(tmp_path / "corpus", {"a": [page(1, 2, 3, 4)], "b": [second]})
    _, pages = cleaned(tmp_path / "out", source, Cleaning())
    assert pages == [("a.parquet", page(1, 2, 3, 4)), ("b.parquet", f"{words(7)}\n{words(8)}   {words(9)}")]


@pytest.mark.usefixtures("alone")
def test_of_nearly_equal_pages_the_first_is_kept(tmp_path):
    random = np.random.default_rng(1)
    originals = [" ".join(f"w{i}" for i in random.integers(0, 500, 200)) + " end." for _ in range(20)]
    near = [text.replace(" end.", " other.") for text in originals]  # a similarity of about 0.99
    source = corpus(tmp_path / "corpus", {"a": originals[:10] + near[:5], "b": near[5:] + originals[10:]})
    rules = {"sentences": 1, "span": 0, "near": 0.8}
    for buckets in (1, 3):
        counts, pages = cleaned(tmp_path / f"out-{buckets}", source, Cleaning(**rules), buckets=buckets)
        assert [text for _, text in pages] == originals[:10] + near[10:]
        assert counts == {"pages": 40, "kept": 20, "page: near-duplicate": 20}


def test_bands_are_those_that_datasketch_would_compare():
    from datasketch import MinHash, MinHashLSH

    bands, rows = bands_of(0.8)
    texts = ["a b c d e f g h", "a b c d e f g x", "q r s t u v w", "a b c d e f g h"]
    keys = [set(band_keys(text, 0.8)) for text in texts]
    assert all(len(own) == bands for own in keys)
    index, signatures = MinHashLSH(num_perm=128, params=(bands, rows)), []
    for number, text in enumerate(texts):
        split = text.split()
        signatures.append(MinHash(num_perm=128, seed=1))
        signatures[-1].update_batch([" ".join(split[i : i + 5]).encode() for i in range(len(split) - 4)])
        index.insert(number, signatures[-1])
    for number, own in enumerate(keys):
        shared = {other for other, its in enumerate(keys) if own & its}
        assert shared == set(index.query(signatures[number]))


def test_groups_are_chains_of_pairs():
    pairs = np.array([[5, 9], [9, 12], [3, 4], [12, 20], [1 << 41, 1 << 42]])
    assert later_of_groups(pairs).tolist() == [4, 9, 12, 20, 1 << 42]
    assert later_of_groups(np.empty((0, 2), np.int64)).tolist() == []


@pytest.mark.usefixtures("alone")
def test_an_interrupted_cleaning_goes_on(tmp_path, monkeypatch):
    from tlm_ray.corpus.cleaning import steps

    source = corpus(tmp_path / "corpus", {"a": [page(*range(9))], "b": [page(*range(4, 12))]})
    whole, pages = cleaned(tmp_path / "whole", source, Cleaning())
    monkeypatch.setattr("tlm_ray.corpus.cleaning.job.drop_spans", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        clean_corpus(str(tmp_path / "out"), source, Cleaning(), workers=1)
    monkeypatch.undo()
    monkeypatch.setattr(steps, "clean_page", lambda *_: pytest.fail("a page was filtered again"))
    assert cleaned(tmp_path / "out", source, Cleaning()) == (whole, pages)


@pytest.mark.usefixtures("alone")
def test_a_corpus_of_single_lines_is_told_what_it_loses(tmp_path, capsys):
    source = corpus(tmp_path / "corpus", {"a": [words(i) for i in range(9)] + [page(20, 21, 22)]})
    cleaned(tmp_path / "out", source, Cleaning())
    said = " ".join(capsys.readouterr().out.split())
    assert "cleaned: 1 of 10 pages are left 9 page: few_sentences" in said
    assert "cleaned: most pages are dropped; 90% have fewer than 3 sentences: lower --sentences" in said
    with pytest.raises(ValueError, match="leaves none of 10 pages; 100% have fewer than 9 sentences: lower --sent"):
        clean_corpus(str(tmp_path / "none"), source, Cleaning(sentences=9), workers=1)


@pytest.mark.usefixtures("alone")
def test_what_a_killed_task_left_is_no_page(tmp_path):
    source = corpus(tmp_path / "corpus", {"a": [page(1, 2, 3)]})
    (tmp_path / "out" / "pages").mkdir(parents=True)
    (tmp_path / "out" / "pages" / "part-00000.parquet.7.ab.tmp").write_bytes(b"half")
    _, pages = cleaned(tmp_path / "out", source, Cleaning())
    assert pages == [("a.parquet", page(1, 2, 3))]


@pytest.mark.usefixtures("alone")
def test_pages_are_found_below_a_root_whose_name_is_a_pattern(tmp_path):
    source = corpus(tmp_path / "corpus", {"a": [page(1, 2, 3)]})
    _, pages = cleaned(tmp_path / "root [1]" / "all*?", source, Cleaning())
    assert pages == [("a.parquet", page(1, 2, 3))]


@pytest.mark.usefixtures("alone")
def test_a_changed_page_is_told(tmp_path):
    source = corpus(tmp_path / "corpus", {"a": [page(1, 2, 3)]})
    cleaned(tmp_path / "out", source, Cleaning())
    (file,) = (tmp_path / "out" / "pages").iterdir()
    pq.write_table(pa.table({"text": ["other"], "source": ["a"]}), file)
    with pytest.raises(ValueError, match=r"part-00000.parquet' is corrupt"):
        pages_of(str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"sentences": -1}, "sentences -1: must be a whole number of 0 or more"),
        ({"letters": 0}, "letters 0: must be a whole number of 1 or more"),
        ({"span": True}, "span True: must be a whole number"),
        ({"certainty": 0.0}, "certainty 0.0: must be above 0 and at most 1"),
        ({"near": 1.0}, "near 1.0: must be 0 .off., or below 1"),
        ({"bad_words": "darn"}, "bad_words 'darn': must be a tuple"),
        ({"bad_words": ("Darn",)}, "bad_words 'Darn': must be in lower case"),
    ],
)
def test_settings_that_mean_nothing_are_refused(setting, said):
    with pytest.raises(ValueError, match=f"cleaning {said}"):
        Cleaning(**setting)


def test_an_unknown_language_is_refused_before_any_work(tmp_path):
    source = corpus(tmp_path / "corpus", {"a": [page(1, 2, 3)]})
    with pytest.raises(ValueError, match=r"cleaning language 'english': allowed are .*, en, .*, ISO 639-1 codes"):
        clean_corpus(str(tmp_path / "out"), source, Cleaning(language="english"), workers=1)


@pytest.mark.usefixtures("alone")
def test_each_row_of_the_experiment_is_trained_on_its_own_corpus(data, tmp_path):
    """The command line's rows, on small data and from random weights."""
    (tmp_path / "words.txt").write_text("Anchor\n\nrunway\n")
    table = runpy.run_path(str(ROOT / "experiments" / "cleaning.py"))["CleaningTable"]
    recipes = table(sentences=2, bad_words=str(tmp_path / "words.txt")).vary(small_recipe())
    flow = small_flow(data, tmp_path / "root")
    stages = {row: flow.stages(recipe, "topics", 0) for row, recipe in recipes.items()}
    make([*(own.passages for own in stages.values()), stages["+ spans"].metrics], flow.execution.root)

    read = {row: PassageStore.open(own.passages.folder(flow.execution.root)) for row, own in stages.items()}
    tables = {row: store.read(0, len(store), ("text", "source")) for row, store in read.items()}
    assert len({own.metrics.fingerprint for own in stages.values()}) == 4
    plain, *others = (set(table["text"].to_pylist()) for table in tables.values())
    assert any("anchor" in text.lower() for text in plain)
    assert not any(word in text.lower() for texts in others for text in texts for word in ("anchor", "runway"))
    assert set(tables["+ spans"]["source"].to_pylist()) == {f"part-{i}.parquet" for i in range(4)}
    (cleaned,) = stages["C4's rules"].passages.inputs.values()
    facts = cleaned.record(flow.execution.root)["facts"]
    assert facts["kept"] + sum(n for name, n in facts.items() if name.startswith("page: ")) == facts["pages"] == 400
