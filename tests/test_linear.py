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
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from small_data import TOPICS
from topic_tasks import make_task, marked

from tlm_ray import storage
from tlm_ray.corpus.labelled.marks import marks_of
from tlm_ray.corpus.labelled.tasks import Task
from tlm_ray.evaluation.predictions import shares
from tlm_ray.plain import TfIdf, Windows, folds
from tlm_ray.plain import features as sets_of_features
from tlm_ray.plain.features import FEATURES, Texts
from tlm_ray.plain.folds import folds_of
from tlm_ray.plain.learners import Fitted, Logistic, NbSvm, Ridge, Svm
from tlm_ray.plain.linear_model import LinearModel
from tlm_ray.plain.search import Search, Setting, sharpness


def split_words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def labels_of(task: Task, *splits: str) -> np.ndarray:
    return np.concatenate([task.splits[split]["label"].to_numpy() for split in splits])


def find(some: list[str], texts: list[str]) -> list[int]:
    """The rows that have one of some texts."""
    return [row for row, text in enumerate(texts) if text in set(some)]


def swapped(rows: pa.Table) -> list[str]:
    """Texts with other spans marked."""
    bare = [
        text.replace("[[", "").replace("]]", "").replace("<<", "").replace(">>", "")
        for text in rows["text"].to_pylist()
    ]
    return [" ".join(["<<", first, ">>", "[[", second, "]]", *rest]) for first, second, *rest in map(str.split, bare)]


@pytest.mark.parametrize("classes", [2, 3])
def test_settings_are_the_best_by_cross_validation_and_the_model_is_scikit_learns(classes):
    task = make_task(classes=classes)
    texts, gold = task.texts("train") + task.texts("dev"), labels_of(task, "train", "dev")
    names = {"words 1-2": 2, "words 1-3": 3}
    options = TfIdf(features=tuple(names), learners=(Logistic(strengths=(0.01, 10.0)),), weights=("balanced",))
    logits, chosen, _ = options.predict(task, "accuracy")

    def model(longest: int, strength: float):
        rows = {"min_df": longest - 1, "ngram_range": (1, longest), "tokenizer": split_words, "token_pattern": None}
        learner = LogisticRegression(C=strength, class_weight="balanced", tol=1e-8)
        return make_pipeline(TfidfVectorizer(sublinear_tf=True, **rows), learner)

    cutter = StratifiedGroupKFold(3, shuffle=True, random_state=0)
    splits = list(cutter.split(texts, gold, groups=[texts.index(text) for text in texts]))
    assert {tuple(held) for _, held in splits} == {tuple(find(fold.held_texts, texts)) for fold in folds_of(task)}
    scores = {
        (name, strength): accuracy_score(gold, cross_val_predict(model(longest, strength), texts, gold, cv=splits))
        for name, longest in names.items() for strength in (0.01, 10.0)
    }  # fmt: skip
    assert scores[chosen["features"], chosen["C"]] == max(scores.values())
    assert chosen["score over folds"] == pytest.approx(100 * max(scores.values())) and chosen["folds"] == 3
    final = model(names[chosen["features"]], chosen["C"]).fit(task.train_texts, labels_of(task, "train"))
    for split in ("dev", "test"):
        np.testing.assert_array_equal(logits[split].argmax(axis=1), final.predict(task.texts(split)))
    assert logits["test"].shape == (20, classes) and chosen["learner"] == "logistic regression"


def test_two_sets_of_features_come_to_the_last_round_with_their_best_class_weights():
    task, names, weights = make_task(), tuple(FEATURES)[:6], ("none", "balanced")
    tried: list[tuple[int, str]] = []

    class Noted(Svm):
        def fit(self, rows, labels, *, strength, weights):
            tried.append((rows.shape[1], weights))
            return super().fit(rows, labels, strength=strength, weights=weights)

    search, coarse = Search(task=task, metric="accuracy"), Svm(strengths=(0.1,))
    search.best(names, weights, [Noted(strengths=(1.0,))], coarse=coarse)
    scores = search.scores([Setting(name, coarse, 0.1, each) for name in names for each in weights])
    best = {name: max(weights, key=lambda each: scores[Setting(name, coarse, 0.1, each)]) for name in names}
    final = sorted(names, key=lambda name: -scores[Setting(name, coarse, 0.1, best[name])])[:2]
    sizes = [
        (Texts(learned=fold.texts, held=fold.held_texts, marks=None).features(name).learned.shape[1], best[name])
        for fold in search.folds for name in final
    ]  # fmt: skip
    assert tried == sizes, "six sets were compared by the coarse learner alone"


def test_rows_of_one_sentence_are_in_one_fold_and_each_row_is_held_out_once():
    task = marked(make_task())
    again = {
        split: pa.concat_tables([rows, rows.set_column(0, "text", pa.array(swapped(rows)))])
        for split, rows in task.splits.items()
    }
    task = replace(task, splits=again)
    found = folds_of(task)
    assert len(found) == 3
    bare = marks_of(task.train_texts).removed
    for fold in found:
        assert not {bare(text) for text in fold.texts} & {bare(text) for text in fold.held_texts}
        assert set(fold.labels) == set(fold.held_labels) == {0, 1, 2}
        assert len(fold.texts) == len(fold.labels) and len(fold.held_texts) == len(fold.held_labels)
    assert sorted(text for fold in found for text in fold.held_texts) == sorted(task.texts("train") + task.texts("dev"))


def test_a_large_dev_set_chooses_alone(monkeypatch):
    task = make_task()
    assert len(folds_of(task)) == 3
    monkeypatch.setattr(folds, "LARGE_DEV", 20)
    (only,) = folds_of(task)
    assert (only.texts, only.held_texts) == (task.texts("train"), task.texts("dev"))


def test_with_a_class_of_two_texts_dev_alone_chooses():
    task, rare = make_task(classes=2), {"train": [1] + [0] * 39, "dev": [1] + [0] * 19}
    few = {split: task.splits[split].set_column(2, "label", pa.array(labels)) for split, labels in rare.items()}
    task = replace(task, splits=task.splits | few)
    (only,) = folds_of(task)
    assert (only.texts, only.held_texts) == (task.texts("train"), task.texts("dev"))
    np.testing.assert_array_equal(only.held_labels, labels_of(task, "dev"))
    assert TfIdf(features=("words 1-2",)).predict(task, "accuracy").chosen["folds"] == 1


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
    rows = Texts(learned=task.train_texts, held=task.texts("dev"), marks=None)
    features = rows.features("words 1-2 + characters 2-5")
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), tokenizer=split_words, token_pattern=None)
    characters = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 5), min_df=2)
    for split, found in (("train", features.learned), ("dev", features.held)):
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
    by_folds = {"folds": 3, "score over folds": chosen["score over folds"]}
    assert chosen == {"features": "plain words", "learner": "ridge regression", "C": 1.0, "weights": "none"} | by_folds


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
    monkeypatch.setattr(sets_of_features, "MOST_CHARACTERS", 100)
    chosen = TfIdf(features=("characters 2-5", "plain words")).predict(make_task(), "accuracy").chosen
    assert (chosen["features"], chosen["left out for size"]) == ("plain words", "characters 2-5")
    chosen = TfIdf(features=("characters 2-5",)).predict(make_task(), "accuracy").chosen
    assert chosen["features"] == "characters 2-5" and "left out for size" not in chosen, "it alone was asked for"


def test_features_are_known_by_their_names():
    with pytest.raises(ValueError, match="features 'letters': allowed are 'words 1-2'"):
        TfIdf(features=("letters",))
    with pytest.raises(ValueError, match="TfIdf: give features, learners and weights to try"):
        TfIdf(learners=())


def test_features_that_only_train_lacks_are_left_out():
    dev = [f"{words} w{place}" for place in range(4) for words in ("five six", "seven eight")]
    rows = {"train": ["one two", "three four"], "dev": dev, "test": ["one", "three"]}
    splits = {
        split: pa.table({"text": texts, "text_pair": [""] * len(texts), "label": [0, 1] * (len(texts) // 2)})
        for split, texts in rows.items()
    }
    task = Task(name="t", metric="accuracy", labels=("a", "b"), digests=("", "", ""), splits=splits)
    assert len(folds_of(task)) == 3
    assert TfIdf(features=("words 1-3", "words 1-2")).predict(task, "accuracy").chosen["features"] == "words 1-2"
    with pytest.raises(ValueError, match="split train: no text has a term of words 1-3; fix the texts"):
        TfIdf(features=("words 1-3",)).predict(task, "accuracy")


def test_pairs_with_one_first_text_are_in_one_fold():
    task = make_task()
    paired = {
        split: pa.concat_tables([rows.set_column(1, "text_pair", pa.array([pair] * len(rows))) for pair in "ab"])
        for split, rows in task.splits.items()
    }
    found = folds_of(replace(task, splits=paired))
    assert len(found) == 3
    for fold in found:
        assert not {text[:-2] for text in fold.texts} & {text[:-2] for text in fold.held_texts}


@pytest.mark.parametrize("classes", [("😀", "😡"), ("!!!", "??"), ("a", "b")])
def test_texts_of_single_signs_or_characters_are_told_apart(classes):
    task = make_task(classes=2)
    splits = {
        split: table.set_column(0, "text", pa.array([classes[label] for label in table["label"].to_pylist()]))
        for split, table in task.splits.items()
    }
    logits, _, _ = TfIdf().predict(replace(task, splits=splits), "accuracy")
    np.testing.assert_array_equal(logits["test"].argmax(axis=1), splits["test"]["label"].to_numpy())
