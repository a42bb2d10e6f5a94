"""Linear models on texts, against scikit-learn on the same rows."""

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import sklearn.linear_model
from scipy.sparse import csr_matrix, hstack
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.svm import LinearSVC
from small_data import TOPICS
from topic_tasks import make_task, marked

from tlm_ray import storage
from tlm_ray.corpus.labelled.tasks import Task
from tlm_ray.evaluation.predictions import shares
from tlm_ray.plain import TfIdf, Windows
from tlm_ray.plain import search as search_of_settings
from tlm_ray.plain.learners import Fitted, Logistic, NbSvm, Ridge, Svm
from tlm_ray.plain.linear_model import LinearModel
from tlm_ray.plain.search import FEATURES, Search, sharpness


def split_words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_linear_model_is_scikit_learns_with_the_settings_that_are_best_on_dev(classes):
    task = make_task(classes=classes)
    (dev, test), gold = (task.texts(split) for split in ("dev", "test")), task.splits["dev"]["label"].to_numpy()
    names = {"words 1-2": 2, "words 1-3": 3}
    options = TfIdf(features=tuple(names), learners=(Logistic(strengths=(0.01, 10.0)),), weights=("balanced",))
    logits, chosen, _ = options.predict(task, "accuracy")

    def fitted(longest: int, strength: float):
        rows = {"min_df": longest - 1, "ngram_range": (1, longest), "tokenizer": split_words, "token_pattern": None}
        vectorizer = TfidfVectorizer(sublinear_tf=True, **rows)
        model = LogisticRegression(C=strength, class_weight="balanced", tol=1e-8)
        model.fit(vectorizer.fit_transform(task.train_texts), task.splits["train"]["label"].to_numpy())
        return vectorizer, model

    scores = {
        (name, strength): accuracy_score(gold, model.predict(vectorizer.transform(dev)))
        for name, longest in names.items() for strength in (0.01, 10.0)
        for vectorizer, model in [fitted(longest, strength)]
    }  # fmt: skip
    assert scores[chosen["features"], chosen["C"]] == max(scores.values())
    vectorizer, model = fitted(names[chosen["features"]], chosen["C"])
    np.testing.assert_array_equal(logits["test"].argmax(axis=1), model.predict(vectorizer.transform(test)))
    assert logits["test"].shape == (20, classes) and chosen["learner"] == "logistic regression"


def test_two_sets_of_features_come_to_the_last_round_with_their_best_class_weights():
    task = make_task()
    tried: list[tuple[str, str]] = []

    class Noted(Svm):
        def fit(self, rows, labels, *, strength, weights):
            tried.append((rows.shape[1], weights))
            return super().fit(rows, labels, strength=strength, weights=weights)

    search = Search(task=task, metric="accuracy")
    search.best(tuple(FEATURES)[:6], ("none", "balanced"), [Noted(strengths=(1.0,))], coarse=Svm(strengths=(0.1,)))
    assert len(tried) == 2, "six sets were compared by the coarse learner alone"
    coarse = {name: Search(task=task, metric="accuracy").best([name], ("none", "balanced"), [Svm(strengths=(0.1,))],
              coarse=Svm(strengths=(0.1,))) for name in tuple(FEATURES)[:6]}  # fmt: skip
    best = sorted(coarse.values(), key=lambda trial: -trial.dev)[:2]
    assert tried == [(trial.features.train.shape[1], trial.settings["weights"]) for trial in best]


@pytest.mark.parametrize(("classes", "weights"), [(2, "none"), (3, "balanced")])
def test_learners_are_scikit_learns_and_naive_bayes_weighs_terms(classes, weights):
    rng, labels = np.random.default_rng(0), np.arange(60) % classes
    rows = np.abs(rng.normal(size=(60, 8))) * (rng.random((60, 8)) < 0.5) + np.eye(classes, 8)[labels]
    given = csr_matrix(rows)
    class_weight = None if weights == "none" else weights
    svm = LinearSVC(C=0.3, class_weight=class_weight, tol=1e-8, max_iter=100_000).fit(rows, labels)
    found = Svm().fit(given, labels, strength=0.3, weights=weights).scores(given, is_number=False)
    np.testing.assert_array_equal(found.argmax(axis=1), svm.predict(rows))
    found = NbSvm().fit(given, labels, strength=0.3, weights=weights).scores(given, is_number=False)
    for label in range(classes) if classes > 2 else [1]:
        is_class, present = labels == label, rows > 0
        own, rest = 1 + present[is_class].sum(axis=0), 1 + present[~is_class].sum(axis=0)
        ratio = np.log((own / own.sum()) / (rest / rest.sum()))
        model = LinearSVC(C=0.3, class_weight=class_weight, tol=1e-8, max_iter=100_000).fit(rows * ratio, is_class)
        np.testing.assert_allclose(found[:, label], model.decision_function(rows * ratio), rtol=1e-2, atol=1e-2)


def test_words_and_characters_side_by_side_are_scikit_learns():
    task = make_task()
    search = Search(task=task, metric="accuracy")
    options = {"weights": ("none",), "learners": [Svm()], "coarse": Svm(strengths=(1.0,))}
    features = search.best(["words 1-2 + characters 2-5"], **options).features
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), tokenizer=split_words, token_pattern=None)
    characters = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 5), min_df=2)
    for split, found in (("train", features.train), ("dev", features.dev)):
        parts = [each.fit(task.train_texts).transform(task.texts(split)) for each in (words, characters)]
        np.testing.assert_allclose(found.toarray(), hstack(parts).toarray(), atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_become_log_odds_by_the_factor_that_scikit_learn_finds(classes):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, 400)
    rows = np.eye(classes)[labels] + rng.normal(size=(400, classes))
    model = LinearSVC().fit(rows[:200], labels[:200])
    fitted = Fitted(np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_))
    scores = fitted.scores(rows[200:], is_number=False)
    expected = CalibratedClassifierCV(FrozenEstimator(model), method="temperature").fit(rows[200:], labels[200:])
    found = shares(sharpness(labels[200:], scores) * scores)
    np.testing.assert_allclose(found, expected.predict_proba(rows[200:]), atol=2e-3)


def test_numbers_are_predicted_by_ridge():
    task = make_task(metric="pearson_spearman")
    options = TfIdf(features=("plain words",), numbers=(Ridge(strengths=(1.0,)),))
    logits, chosen, _ = options.predict(task, "pearson_spearman")
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    model = sklearn.linear_model.Ridge(alpha=1.0).fit(
        vectorizer.fit_transform(task.train_texts), task.splits["train"]["label"].to_numpy()
    )
    np.testing.assert_allclose(logits["dev"][:, 0], model.predict(vectorizer.transform(task.texts("dev"))))
    assert chosen == {"features": "plain words", "learner": "ridge regression", "C": 1.0, "weights": "none"}


ONE = {"weights": ("none",), "numbers": (Ridge(strengths=(1.0,)),)}
LEARNERS = (Logistic(strengths=(1.0,)), Svm(strengths=(1.0,)), NbSvm(strengths=(1.0,)))
KINDS = [
    *(TfIdf(features=(name,), learners=LEARNERS[1:2], **ONE) for name in FEATURES if "windows" not in name),
    *(TfIdf(features=("words 1-2",), learners=(learner,), **ONE) for learner in LEARNERS),
    *(Windows(features=(name,), learners=LEARNERS[1:2], **ONE) for name in FEATURES if "windows" in name),
]


@pytest.mark.parametrize(("classes", "metric"), [(2, "accuracy"), (3, "accuracy"), (3, "pearson_spearman")])
@pytest.mark.parametrize("classifier", KINDS, ids=lambda each: f"{each.features[0]}, {each.learners[0].name}")
def test_a_linear_model_that_was_kept_says_what_it_said(tmp_path, classifier, classes, metric):
    task = marked(make_task(metric=metric, classes=classes))
    found = classifier.predict(task, metric)
    found.model.save(str(tmp_path))
    kept = LinearModel.open(str(tmp_path))
    np.testing.assert_array_equal(kept.logits(task.texts("test")), found.logits["test"])
    np.testing.assert_allclose(kept.logits(task.texts("dev")), found.logits["dev"], rtol=1e-12, atol=1e-12)
    assert kept.labels == task.labels


def test_a_linear_model_of_an_earlier_version_is_to_be_trained_anew(tmp_path):
    storage.write_record(str(tmp_path / "linear.json"), {"bias": [0.0], "ngrams": 1, "labels": ["a", "b"]})
    with pytest.raises(ValueError, match=r"saved by an earlier version; train it again"):
        LinearModel.open(str(tmp_path))


def test_windows_tell_apart_what_words_cannot():
    """The label says which of two marked words comes first, the words are the same."""
    rng, splits, words = np.random.default_rng(0), {}, TOPICS["sea"]
    for split, rows in (("train", 80), ("dev", 40), ("test", 40)):
        labels, texts = rng.integers(0, 2, rows), []
        for label in labels:
            first, second = ("[[", "]]"), ("<<", ">>")
            a, b = (first, second) if label else (second, first)
            one, other = rng.choice(words, 2)
            texts.append(f"the {a[0]} {one} {a[1]} of the {b[0]} {other} {b[1]}")
        splits[split] = pa.table({"text": texts, "text_pair": [""] * rows, "label": labels})
    task = Task(name="t", metric="accuracy", labels=("no", "yes"), digests=("", "", ""), splits=splits)
    gold = splits["test"]["label"].to_numpy()
    assert (Windows().predict(task, "accuracy").logits["test"].argmax(axis=1) == gold).all()
    plain = TfIdf(features=("plain words 1-2",)).predict(task, "accuracy").logits["test"].argmax(axis=1)
    assert (plain == gold).mean() < 0.75


def test_the_row_of_windows_is_of_tasks_that_mark_spans():
    task = make_task()
    assert Windows().suits(marked(task).train_texts) and not Windows().suits(task.train_texts)
    assert not Windows().suits(()) and TfIdf().suits(())
    with pytest.raises(ValueError, match="split train: no two kinds of brackets mark a span each in 95 % of the texts"):
        Windows().predict(task, "accuracy")


def test_texts_without_a_term_are_refused_and_the_split_named():
    task = make_task(classes=2)
    splits = {split: table.set_column(0, "text", pa.array(["!"] * len(table))) for split, table in task.splits.items()}
    with pytest.raises(ValueError, match="split train: no text has a term of plain words; fix the texts"):
        TfIdf(features=("plain words",)).predict(replace(task, splits=splits), "accuracy")
    assert TfIdf().predict(replace(task, splits=splits), "accuracy").chosen["features"] == "words 1-2"


def test_runs_of_characters_are_left_out_of_much_text_and_that_is_told(monkeypatch):
    monkeypatch.setattr(search_of_settings, "MOST_CHARACTERS", 100)
    chosen = TfIdf(features=("characters 2-5", "plain words")).predict(make_task(), "accuracy").chosen
    assert (chosen["features"], chosen["left out for size"]) == ("plain words", "characters 2-5")
    chosen = TfIdf(features=("characters 2-5",)).predict(make_task(), "accuracy").chosen
    assert chosen["features"] == "characters 2-5" and "left out for size" not in chosen, "it alone was asked for"


def test_features_are_known_by_their_names():
    with pytest.raises(ValueError, match="features 'letters': allowed are 'words 1-2'"):
        TfIdf(features=("letters",))
    with pytest.raises(ValueError, match="TfIdf: give features, learners and weights to try"):
        TfIdf(learners=())


@pytest.mark.parametrize("classes", [("😀", "😡"), ("!!!", "??"), ("a", "b")])
def test_texts_of_single_signs_or_characters_are_told_apart(classes):
    task = make_task(classes=2)
    splits = {
        split: table.set_column(0, "text", pa.array([classes[label] for label in table["label"].to_pylist()]))
        for split, table in task.splits.items()
    }
    logits, _, _ = TfIdf().predict(replace(task, splits=splits), "accuracy")
    np.testing.assert_array_equal(logits["test"].argmax(axis=1), splits["test"]["label"].to_numpy())
