"""The embedded corpus and task: the same bytes always, and no give-away in the task."""

import hashlib
import random
import re

import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from test_packages import as_bytes

from tlm_ray.corpus.embedded.embedded_task import MASK, NAME, docstring_corpus_and_task
from tlm_ray.corpus.embedded.packages import LIBRARIES, read_package

REAL = ("networkx", "sqlalchemy")  # 14,000 passages in 2 s


def letters(text):
    return re.sub("[^a-z]", "", text.lower())


def runs(text, length):
    words = re.findall("[a-z]+", text.lower())
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def synthetic(name, rows=420):
    """A library of random words, each paragraph with one of the ways to name a library."""
    rng = random.Random(name)
    ways = ("{n}", "{n}.core.thing", "Py{n}", "np.array", "pd.DataFrame", "RayTask", "NumPy's")
    words = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(400)]
    texts = [" ".join([*rng.choices(words, k=20), rng.choice(ways).format(n=name)]) for _ in range(rows)]
    return pa.table({"text": texts, "source": [name] * rows})


@pytest.fixture(scope="module")
def tables():
    made = {name: synthetic(name) for name in LIBRARIES if name not in REAL}
    copies = pa.table({"text": ["The same text, twice over, in a package."] * 2, "source": ["extra"] * 2})
    return made | {name: read_package(name) for name in REAL} | {"extra": copies}


@pytest.fixture(scope="module")
def made(tables):
    return docstring_corpus_and_task(tables)


@pytest.mark.parametrize(
    "text",
    ["numpy", "NumPy's", "np.linalg.norm", "`pd.DataFrame`", "plt", "sklearn.svm.SVC",
     "scikit-learn", "PyTorch", "torch.nn", "torchvision", "RayTask", "ray.get", "RAY_ADDRESS",
     "Ray", "nx.Graph", "sa.Column", "MlflowClient", "~sqlalchemy.orm.Session", "HuggingFace",
     "Hugging Face", "mpl_toolkits", "SymPy-like"],
)  # fmt: skip
def test_names_are_masked_whole(text):
    masked = NAME.sub(MASK, f"before {text}. After")
    assert re.fullmatch(rf"before \W?{MASK}(?:'s)?\W?\. After", masked)


@pytest.mark.parametrize("text", ["array of gray input", "snap upd", "a tray, an x", "The library"])
def test_other_words_are_not_masked(text):
    assert NAME.sub(MASK, text) == text


# Bytes of the stage "documents", version 3. If they change, raise its version in tlm_ray/runs/flow/flow.py first.
GOLDEN = {
    "corpus": "eb2d8ddca92018ee",
    "train": "c23b5b180dd5abd2",
    "dev": "4de4bee30a42a54d",
    "test": "d5739078ff242dc5",
}


def test_corpus_and_task_are_the_bytes_of_their_version():
    corpus, task = docstring_corpus_and_task({name: synthetic(name) for name in LIBRARIES})
    made = {"corpus": corpus} | task
    digests = {name: hashlib.sha256(as_bytes(table)).hexdigest()[:16] for name, table in made.items()}
    assert digests == GOLDEN


def test_no_task_text_names_a_library(made):
    names = "numpy scipy sympy networkx matplotlib pyplot pandas sklearn scikit torch mlflow"
    names += " sqlalchemy transformers"
    for text in (text for table in made[1].values() for text in table["text"].to_pylist()):
        assert not [name for name in names.split() if name in text.lower()], text
        assert not re.search(r"(?i)\b(np|pd|plt|nx|sa)\.|\bray\b", text), text


def test_task_is_balanced_and_of_sensible_length(made):
    for split, rows in (("train", 84), ("dev", 50), ("test", 200)):
        labels = made[1][split]["label"].to_pylist()
        assert {name: labels.count(name) for name in LIBRARIES} == dict.fromkeys(LIBRARIES, rows)
        assert all(18 <= len(text.split()) <= 80 for text in made[1][split]["text"].to_pylist())


def test_no_text_nor_long_run_of_words_is_twice_in_the_task(made):
    texts = [text for table in made[1].values() for text in table["text"].to_pylist()]
    assert len({letters(text) for text in texts}) == len(texts)
    own = [runs(text, 8) for text in texts]
    assert sum(map(len, own)) == len(set().union(*own))


def test_corpus_shares_no_long_run_of_words_with_the_task(made):
    corpus = set().union(*(runs(text, 8) for text in made[0]["text"].to_pylist()))
    for table in made[1].values():
        for part in (part for text in table["text"].to_pylist() for part in text.split(MASK)):
            assert corpus.isdisjoint(runs(part, 8)), part


def test_corpus_keeps_each_other_text_once(tables, made):
    texts, sources = made[0].to_pydict().values()
    assert len({letters(text) for text in texts}) == len(texts)
    for name, table in tables.items():
        kept = [text for text, source in zip(texts, sources, strict=True) if source == name]
        assert set(kept) <= set(table["text"].to_pylist())
        most = len({letters(text) for text in table["text"].to_pylist()}) - 334 * (name in LIBRARIES)
        assert 0.9 * most < len(kept) <= most if name in REAL else len(kept) == most


def test_texts_of_two_packages_are_no_candidates(tables):
    texts = [f"{text} 1." for text in tables["networkx"]["text"].to_pylist()]
    copies = pa.table({"text": texts, "source": ["copy"] * len(texts)})
    with pytest.raises(ValueError, match=r"networkx \(334 short\)"):
        docstring_corpus_and_task(tables | {"copy": copies})


def test_task_depends_on_texts_not_on_order(tables, made):
    rng = random.Random(0)
    mixed = {
        name: tables[name].take(rng.sample(range(tables[name].num_rows), tables[name].num_rows))
        for name in reversed(tables)
    }
    _, task = docstring_corpus_and_task(mixed)
    for split, table in made[1].items():
        assert as_bytes(task[split]) == as_bytes(table)
    again, _ = docstring_corpus_and_task({name: tables[name] for name in reversed(tables)})
    assert as_bytes(again) == as_bytes(made[0])


def test_too_few_or_no_paragraphs_name_the_library(tables):
    few = {name: table for name, table in tables.items() if name != "pandas"}
    few["numpy"] = tables["numpy"].slice(0, 200)
    with pytest.raises(ValueError, match=r"needs 334 .*numpy \(134 short\), pandas \(334 short\)"):
        docstring_corpus_and_task(few)


def test_two_real_libraries_can_be_told_apart_without_their_names(made):
    rows = {split: [r for r in table.to_pylist() if r["label"] in REAL] for split, table in made[1].items()}
    fit = [[row[column] for row in rows["train"]] for column in ("text", "label")]
    score = [[row[column] for row in rows["test"]] for column in ("text", "label")]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(*fit)
    assert 0.8 < model.score(*score) < 1
