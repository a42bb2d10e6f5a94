"""What an experiment reads from its stages' records."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from huggingface_hub import ModelCard
from page_reading import Page
from scipy.stats import pearsonr, spearmanr, t
from small import small_flow, small_recipe
from topic_tasks import linear_model
from tracked import empty_store

from tlm_ray import storage
from tlm_ray.corpus.labelled.task_files import SPLITS
from tlm_ray.corpus.labelled.tasks import Task, write_task
from tlm_ray.evaluation.pooling import best_share, pooled
from tlm_ray.evaluation.predictions import shares, write_predictions
from tlm_ray.evaluation.scores import score
from tlm_ray.plain import Bm25Neighbours, TfIdf, Windows
from tlm_ray.plain.classifier import KEPT
from tlm_ray.plain.linear_model import LinearModel, is_linear
from tlm_ray.report import Results, View
from tlm_ray.report.statistics.jackknife import interval_over_rows
from tlm_ray.report.tables.grids import make_grid
from tlm_ray.runs import experiment
from tlm_ray.runs.card import model_card
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.groups import names_of_means
from tlm_ray.runs.outcome import Outcome
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import RECORD, Stage, unique
from tlm_ray.runs.tracking.tracker import Tracker
from tlm_ray.training.cost import flops_of
from tlm_ray.training.encoders.starts import Pretrained

FACTS = {
    "task": {"train_bytes": 1000},
    "passages": {"passages": 900},
    "neighbours": {"selected": 30, "rank_bytes": [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]},
    "stage_one": {"parameters": 7, "flops_counted": 11, "seconds": 3.0, "history": [{"step": 1, "dev": 41.0}]},
    "stage_two": {"parameters": 7, "flops_counted": 13, "seconds": 2.0},
    "metrics": {"dev": 60.0, "test": 50.0, "metric": "accuracy", "seconds": 1.0},
}


def recorded(stage: Stage, root: str) -> None:
    """Write the records of a stage and of all that it needs, as if they had been made."""
    for each in stage.upstream():
        record = {"recipe": each.recipe, "facts": FACTS.get(each.name, {})}
        storage.write_record(storage.join(each.folder(root), RECORD), record)


@pytest.fixture
def outcome(data, tmp_path):
    """Two rows: one from scratch, one of a pretrained encoder without stage one, whose teacher has one."""
    flow = small_flow(data, tmp_path)
    scratch = Training(row="scratch", task="topics", recipe=small_recipe(), seed=0)
    tuned = replace(small_recipe(), start=Pretrained("owner/encoder"), stage_one=None)
    pretrained = Training(row="pretrained", task="topics", recipe=tuned, seed=0)
    stages = {training: flow.stages(training.recipe, "topics", 0) for training in (scratch, pretrained)}
    two, teacher = stages[pretrained].stage_two, stages[scratch].stage_two
    taught = replace(two, inputs=dict(two.inputs) | {"teacher": teacher})
    metrics = replace(stages[pretrained].metrics, inputs={"stage_two": taught})
    stages[pretrained] = replace(stages[pretrained], stage_two=taught, metrics=metrics)
    for each in stages.values():
        recorded(each.metrics, flow.execution.root)
    return Outcome(name="x", stages=stages, records=Records(flow.execution.root), tracker=None)  # type: ignore[arg-type]


def test_only_a_row_of_weights_trained_elsewhere_is_marked_as_pretrained(outcome):
    assert {cell.row: cell.pretrained for cell in outcome.cells()} == {"scratch": False, "pretrained": True}


def test_facts_are_those_of_the_trainings_own_stages(outcome):
    scratch, pretrained = (outcome.facts(training) for training in outcome.stages)
    assert (scratch["flops_counted"], pretrained["flops_counted"]) == (24, 13)
    assert (scratch["seconds"], pretrained["seconds"]) == (5.0, 2.0)
    assert scratch["data_bytes"] == 1000 + 10 + 20 + 30 + 40 + 50


def test_a_frozen_weight_costs_two_thirds_of_a_trained_one():
    assert flops_of({"tokens": 5}, {"parameters": 10}) == 300
    assert flops_of({"tokens": 5}, {"parameters": 10, "parameters_trained": 1}) == 210


def test_an_experiment_whose_scores_cannot_be_told_is_tracked_as_failed(outcome, data, tmp_path, monkeypatch):
    failed = []
    monkeypatch.setattr(experiment, "check_cluster", lambda *_: None)
    monkeypatch.setattr(experiment, "fitted", lambda execution: execution)
    monkeypatch.setattr(experiment, "make", lambda *_, **__: None)  # the fixture has recorded all of it
    monkeypatch.setattr(experiment, "_scores", lambda _: 1 / 0)
    monkeypatch.setattr(Tracker, "fail", lambda tracker: failed.append(tracker.name))
    with pytest.raises(ZeroDivisionError):
        experiment.run(
            list(outcome.stages)[:1], small_flow(data, tmp_path), name="x", tracking_uri=empty_store(tmp_path)
        )
    assert failed == ["x"]


def test_a_flows_own_followers_follow_its_trainings(outcome, data, tmp_path, monkeypatch):
    flow, used = replace(small_flow(data, tmp_path), followers=lambda stage: [f"own of {stage.name}"]), []
    lay_out, scratch = Training.stages, next(iter(outcome.stages))
    followed = lambda *_, **__: followers.extend(used[-1].followers(outcome.stages[scratch].stage_two))  # noqa: E731
    followers = []
    monkeypatch.setattr(experiment, "check_cluster", lambda *_: None)
    monkeypatch.setattr(experiment, "fitted", lambda execution: execution)
    monkeypatch.setattr(experiment, "make", followed)  # the fixture has recorded all of it
    monkeypatch.setattr(Training, "stages", lambda one, flow: used.append(flow) or lay_out(one, flow))
    experiment.run([scratch], flow, name="x", tracking_uri=empty_store(tmp_path))
    tracked, own = followers
    assert own == "own of stage_two" and tracked.func.__name__ == "follow"


def test_the_model_is_stage_twos(outcome):
    for training, stages in outcome.stages.items():
        assert outcome.model(training) == storage.join(stages.stage_two.folder(outcome.root), "model")


GOLD = np.array([0, 1, 2, 0, 1, 2, 0, 1])
ROWS = np.arange(len(GOLD))


def sure_of(classes, strength=1.0):
    """Logits whose highest is that of the given class."""
    logits = np.zeros((len(GOLD), 3))
    logits[ROWS, classes] = strength
    return logits


TEXTS = [f"[{word}] of {{{end}}} here" for word, end in zip("aabbcdef", "xyxyzzzz", strict=True)]
TEXTS[1] = "a of [x] {here}"  # the first again, which marks other spans
SAID = [sure_of(GOLD), sure_of((GOLD + 1) % 3, np.where(ROWS < 6, 0.5, 2.0)), sure_of(np.zeros(len(GOLD), int))]
GOLD_OF_DEV = np.array([0, 0, 0, 0, 2, 2, 1, 2])  # of which each row knows some that the others do not


@pytest.fixture
def two_rows(data, tmp_path):
    """A row of two seeds, of which one is surer, and a plain one; their predictions written, their texts as given."""
    flow = small_flow(data, tmp_path)
    trainings = [Training(row="ours", task="topics", recipe=small_recipe(), seed=seed) for seed in (0, 1)]
    trainings.append(Training(row="plain", task="topics", recipe=TfIdf()))
    stages = {training: training.stages(flow) for training in trainings}
    for each, logits in zip(stages.values(), SAID, strict=True):
        recorded(each.metrics, flow.execution.root)
        folder = each.metrics.folder(flow.execution.root)
        write_predictions(folder, "test", GOLD, logits)
        write_predictions(folder, "dev", GOLD_OF_DEV, logits)
    linear_model(["sea"], np.zeros((3, 1)), ("a", "b", "c")).save(
        storage.join(stages[trainings[-1]].metrics.folder(flow.execution.root), KEPT)
    )
    facts = {"train_bytes": 1000, "test_in_train": 3, "train_rows": 9, "dev_rows": 8, "test_rows": 8}
    task = stages[trainings[0]].task
    table = pa.table({"text": TEXTS, "text_pair": [""] * len(TEXTS), "label": GOLD})
    rows = Task(name="", metric="accuracy", labels=tuple("abc"), digests=(), splits=dict.fromkeys(SPLITS, table))
    write_task(task.folder(flow.execution.root), rows)
    storage.write_record(
        storage.join(task.folder(flow.execution.root), RECORD), {"recipe": task.recipe, "facts": facts}
    )
    return Outcome(name="x", stages=stages, records=Records(flow.execution.root), tracker=None, ensembles=("ours",))  # type: ignore[arg-type]


def test_an_ensemble_is_the_mean_of_probabilities_and_costs_all_of_its_trainings(two_rows):
    ours, together, plain = two_rows.cells()
    assert (together.row, plain.row) == ("ours, mean of 2 seeds", "plain")
    assert together.scores == (75.0,) and together.dev_scores == (62.5,), "the surer one decides the last two of eight"
    assert (together.flops, together.wall_s) == (2 * ours.flops, 2 * ours.wall_s)
    students = [replace(each, facts=[own | {"seconds_taught": 9.0} for own in each.facts]) for each in two_rows.groups]
    assert [each.cell().wall_s for each in students[:2]] == [ours.wall_s + 9, 2 * ours.wall_s + 9], "the same teachers"
    assert [group.predictions().predicted.shape for group in two_rows.groups] == [(2, 8), (1, 8), (1, 8)]


def test_a_metric_that_is_the_mean_of_two_is_shown_with_both(two_rows):
    group = two_rows.groups[0]
    cell = replace(group, facts=[facts | {"metric": "pearson_spearman"} for facts in group.facts]).cell()
    predicted = [logits.argmax(axis=1) for logits in SAID[:2]]
    expected = [np.mean([100 * kind(GOLD, run).statistic for run in predicted]) for kind in (pearsonr, spearmanr)]
    assert cell.parts == pytest.approx(expected)
    assert group.cell().parts == ()
    shown = f"{np.mean(cell.scores):.2f} ± {np.std(cell.scores, ddof=1):.2f} ({expected[0]:.1f}/{expected[1]:.1f})"
    assert make_grid(Results(cells=[cell])).lines[0].texts[0] == shown


def test_a_plain_classifier_has_the_share_beside_trainings_that_the_dev_set_gives_it(two_rows):
    beside = replace(two_rows, pooled=True)
    groups = {group.cell().row: group for group in beside.groups}
    assert list(groups) == [
        "ours",
        "ours, mean of 2 seeds",
        "ours with linear model",
        "ours, mean of 2 seeds with linear model",
        "plain",
    ]
    for seeds, pooled_too in ((2, True), (2, False), (1, True), (1, False)):
        some = {one: own for one, own in two_rows.stages.items() if one.row != "ours" or one.seed < seeds}
        rows = [group.name for group in replace(two_rows, stages=some, pooled=pooled_too).groups]
        assert rows == ["ours", *names_of_means("ours", seeds, with_linear=pooled_too), "plain"]
    first, second, plain = map(shares, SAID)
    mean = (first + second) / 2
    given = [best_share(GOLD_OF_DEV, own, plain) for own in (first, second, mean)]
    assert all(0 < share < 1 for share in given), "of the test set they would be 1, 0 and 1"
    said = [pooled(own, plain, share).argmax(axis=1) for own, share in zip((first, second, mean), given, strict=True)]
    each = groups["ours with linear model"].predictions()
    np.testing.assert_array_equal(each.predicted, said[:2])
    whole = groups["ours, mean of 2 seeds with linear model"].predictions()
    np.testing.assert_array_equal(whole.predicted, said[2:])
    np.testing.assert_array_equal(whole.without, [said[1], said[0]], "each seed left out in turn")
    assert each.members == whole.members == "ours" and each.without is None
    assert [group.cell().members for group in groups.values()] == ["", "ours", "ours", "ours", ""]


def test_an_ensemble_that_is_kept_has_the_share_of_all_seeds(two_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "copy_folder", lambda source, target: None)
    kept = replace(two_rows, pooled=True).keep_ensemble("ours", str(tmp_path / "kept"))
    assert [folder.rpartition("/")[2] for folder in kept] == ["seed-0", "seed-1", "linear"]
    first, second, plain = map(shares, SAID)
    assert LinearModel.open(kept[-1]).encoders_share == best_share(GOLD_OF_DEV, (first + second) / 2, plain)
    cards = [ModelCard.load(f"{folder}/README.md").data.eval_results for folder in kept[:2]]
    assert [[each.metric_value for each in own] for own in cards] == [[60.0, 50.0], [60.0, 50.0]]


def test_one_model_that_is_kept_with_the_linear_one_has_its_own_share(two_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "copy_folder", lambda source, target: None)
    stages = {one: own for one, own in two_rows.stages.items() if one.row != "ours" or one.seed == 1}
    kept = replace(two_rows, stages=stages, pooled=True).keep_ensemble("ours", str(tmp_path / "kept"))
    assert [folder.rpartition("/")[2] for folder in kept] == ["seed-1", "linear"]
    _, second, plain = map(shares, SAID)
    assert LinearModel.open(kept[-1]).encoders_share == best_share(GOLD_OF_DEV, second, plain)


def test_a_model_takes_the_place_of_one_of_the_other_kind(two_rows, tmp_path, monkeypatch):
    """`predict.py` takes a folder with linear.json for a linear model, and transformers opens one with config.json."""
    kinds = {
        "linear": {"linear.json", "terms.arrow"},
        "encoder": {"config.json", "model.safetensors", "tokenizer.json"},
    }
    for kind, files in kinds.items():
        with storage.folder_for_writing(str(tmp_path / kind)) as folder:
            for file in files:
                (folder / file).write_text(kind)
    (tmp_path / "linear" / "SHA256SUMS").unlink()  # a linear model is saved without
    kept, trained = tmp_path / "model", next(iter(two_rows.stages))
    kept.mkdir()
    (kept / "notes.txt").write_text("mine")
    for kind, others in (("linear", set()), ("encoder", set()), ("linear", {"tokenizer.json"})):
        monkeypatch.setattr(type(two_rows), "model", lambda self, training, kind=kind: str(tmp_path / kind))
        two_rows.keep_model(trained, str(kept))
        there = {"notes.txt", "README.md", *(["SHA256SUMS"] if kind == "encoder" else [])}
        assert {path.name for path in kept.iterdir()} == kinds[kind] | others | there
        storage.check_sums(str(kept))
        assert is_linear(str(kept)) == (kind == "linear")


def test_a_kept_model_has_a_card_but_a_readme_of_ones_own_stays(two_rows, tmp_path, monkeypatch, capsys):
    with storage.folder_for_writing(str(tmp_path / "encoder")) as folder:
        (folder / "config.json").write_text("{}")
    monkeypatch.setattr(type(two_rows), "model", lambda self, training: str(tmp_path / "encoder"))
    monkeypatch.setattr("sys.argv", ["train.py", "--token", "SECRET", "s3://KEY:WORD@bucket/texts"])
    trained, kept = next(iter(two_rows.stages)), tmp_path / "model"
    two_rows.keep_model(trained, str(kept))
    card = ModelCard.load(kept / "README.md")
    assert [(each.dataset_split, each.metric_value) for each in card.data.eval_results] == [
        ("dev", 60.0),
        ("test", 50.0),
    ]
    assert "| test | accuracy | 50.00 | not computed |" in card.text, "all its predictions are right"
    (low, high) = interval_over_rows(
        "accuracy", GOLD_OF_DEV, SAID[0].argmax(axis=1), np.array([0, 0, 1, 2, 3, 4, 5, 6])
    )
    assert f"| dev | accuracy | 60.00 | {low:.1f} to {high:.1f} |" in card.text
    assert "chosen for the training texts among 900 passages, by bm25" in card.text
    assert "The text of 3 test rows is also in the training set." in card.text
    assert "SECRET" not in card.text and "WORD" not in card.text
    plain = list(two_rows.stages)[-1]
    two_rows.keep_model(plain, str(kept))
    assert not (kept / "README.md").exists(), "a linear model has no card, nor that of another model"
    (kept / "README.md").write_text("my own")
    two_rows.keep_model(trained, str(kept))
    assert (kept / "README.md").read_text() == "my own" and "has a README.md of yours" in capsys.readouterr().out


def test_a_card_of_several_tasks_of_numbers_or_of_old_records_is_whole(two_rows):
    made = next(iter(two_rows.stages.values()))
    storage.write_record(
        storage.join(made.task.folder(two_rows.root), RECORD), {"recipe": made.task.recipe, "facts": {}}
    )
    united = replace(made.neighbours, parameters={"part_rows": 5})
    stages = replace(made, neighbours=united)
    cleaned = replace(made.passages, name="cleaned", parameters={"corpus": "d9"})
    passages = replace(made.passages, parameters={}, inputs={"cleaned": cleaned})
    recorded(passages, two_rows.root)
    stages = replace(stages, passages=passages)
    of_numbers = replace(made.task, parameters={"labels": (), "digests": ("a", "b", "b")})
    recorded(of_numbers, two_rows.root)
    numbers = replace(stages, task=of_numbers)
    for own, kind in ((stages, "A text classifier with"), (numbers, "A regression of texts with")):
        card = model_card(own, Records(two_rows.root), task="a `task`\nof two", scores=[])
        assert kind in card and "by retrieval for several tasks" in card and "# a `task` of two\n" in card
        assert "- Identity of the corpus: `d9`." in card
        assert "Labelled rows" not in card and ("Classes" in card) == (own is stages)


def test_a_card_says_why_a_score_may_lie_outside_its_interval(two_rows):
    draw = np.random.default_rng(0)
    drawn = [(gold := draw.integers(0, 77, 100), np.where(draw.random(100) < 0.8, gold, 0)) for _ in range(20)]
    found = [(score("macro_f1", *each), interval_over_rows("macro_f1", *each)) for each in drawn]
    assert any(not low <= value <= high for value, (low, high) in found), "with few rows per class"
    card = model_card(next(iter(two_rows.stages.values())), Records(two_rows.root), task="a", scores=[])
    assert "The interval is corrected for that, so it can leave the score out." in card


def test_the_interval_of_an_accuracy_is_students(two_rows):
    hits = np.array([1, 1, 1, 0, 1, 0, 1, 1] * 20)
    found = interval_over_rows("accuracy", np.ones(160, np.int64), hits)
    kept = t.interval(0.95, 159, hits.mean() * 100, hits.std(ddof=1) * 100 / np.sqrt(160))
    assert found == pytest.approx(kept, abs=0.05), "the degrees of freedom are estimated"
    assert interval_over_rows("accuracy", np.ones(3, np.int64), np.ones(3, np.int64), np.zeros(3, np.int64)) is None
    assert interval_over_rows("accuracy", np.ones(9, np.int64), np.ones(9, np.int64)) is None, "no error was seen"


def with_another(two_rows, flow, recipe, dev):
    """Return the outcome with another plain row, of a given score on dev."""
    added = Training(row="another", task="topics", recipe=recipe)
    stages = added.stages(flow)
    folder = stages.metrics.folder(two_rows.root)
    facts = FACTS["metrics"] | {"dev": dev}
    storage.write_record(storage.join(folder, RECORD), {"recipe": stages.metrics.recipe, "facts": facts})
    for split, gold in (("test", GOLD), ("dev", GOLD_OF_DEV)):
        write_predictions(folder, split, gold, SAID[1])
    return replace(two_rows, pooled=True, stages={**two_rows.stages, added: stages})


@pytest.mark.parametrize(("recipe", "dev", "short"), [
    (Windows(), 99.0, "windows"), (Windows(), 1.0, "TF-IDF"), (Bm25Neighbours(), 99.0, "TF-IDF"),
])  # fmt: skip
def test_the_linear_model_that_is_best_on_dev_is_pooled(two_rows, data, tmp_path, recipe, dev, short):
    outcome = with_another(two_rows, small_flow(data, tmp_path), recipe, dev)
    groups = {group.cell().row: group for group in outcome.groups}
    assert groups["ours, mean of 2 seeds with linear model"].beside.short == short
    assert f"Ensembles include the linear model that is best on dev: {short} on topics" in outcome.notes


def test_without_a_linear_model_nothing_is_pooled(two_rows):
    alone = {training: own for training, own in two_rows.stages.items() if training.row == "ours"}
    rows = [cell.row for cell in replace(two_rows, pooled=True, stages=alone).cells()]
    assert rows == ["ours", "ours, mean of 2 seeds"]


def test_rows_are_compared_by_what_they_predicted(two_rows):
    found = {each.other: each.mean for each in two_rows.results(View(against="ours")).differences if each.row == "ours"}
    assert found == {"plain": 50.0 - 37.5, "ours, mean of 2 seeds": 50.0 - 75.0}
    assert [group.predictions().is_drawn for group in two_rows.groups] == [True, True, False]
    _, together, _ = (group.predictions() for group in two_rows.groups)
    assert together.members == "ours"
    np.testing.assert_array_equal(together.without, [(GOLD + 1) % 3, GOLD], "each seed left out in turn")


def test_an_outcome_shows_the_table_with_its_last_row_against_the_others(two_rows):
    table, differences = Page(two_rows._repr_html_()).tables[""]
    results = two_rows.results(View(against="plain"))
    assert [row[1:] for row in table[1:]] == [list(line.texts) for line in make_grid(results).lines]
    assert [row[0] for row in differences] == ["", "ours", "ours, mean of 2 seeds"]
    frame = two_rows.to_pandas()["topics"]
    assert frame["score"].to_dict() == {"ours": 50.0, "ours, mean of 2 seeds": 75.0, "plain": 50.0}
    assert frame["seeds"].to_list() == [2, 1, 1] and frame.loc["ours", "std"] == 0
    assert repr(two_rows) == "<Outcome x: 3 trainings of 2 rows on topics>"


def test_where_the_table_is_has_no_credentials(two_rows, monkeypatch, capsys):
    out = "s3://key:secret@bucket/out"
    monkeypatch.setattr(Outcome, "publish", lambda self, results, out: {"x.html": f"{out}/x.html"})
    two_rows.show(View(against="ours"), out)
    said = capsys.readouterr().out
    assert "s3://***@bucket/out/x.html" in said and "secret" not in said


def test_a_table_against_another_row_or_of_another_split_is_kept_beside_the_first(two_rows, monkeypatch, capsys):
    monkeypatch.setattr(Outcome, "publish", lambda self, results, out: {"x.html": f"{out}/x.html"})
    ours = View(against="ours")
    for view in (ours, View(against="plain"), replace(ours, split="dev"), ours):
        two_rows.show(view, "out")
    first, *others, again = re.findall(r"^Kept when .*: (out/kept/x_topics_\S+)$", capsys.readouterr().out, re.M)
    assert len({first, *others}) == 3 and again == first


def test_texts_that_are_trained_on_and_tested_on_are_told(two_rows):
    shared, ensemble = two_rows.notes
    assert shared.startswith("topics: the text of 3 of 8 test rows is also in the training set")
    assert ensemble.startswith("A mean of seeds costs as much as all its seeds")


def test_tasks_whose_shared_texts_were_never_counted_are_named(outcome):
    assert outcome.notes == ["topics: recorded before test texts in the training set were counted"]


def test_rows_of_one_text_are_drawn_together_and_told(two_rows):
    groups = [group.predictions().groups for group in two_rows.groups]
    assert all(own.tolist() == [0, 0, 1, 2, 3, 4, 5, 6] for own in groups)
    results = two_rows.results(View(against="ours"))
    assert results.notes[0] == "topics: 8 test rows of 7 texts; intervals are over texts, not rows"
    assert two_rows.results(View(against="ours", split="dev")).notes[0].startswith("topics: 8 dev rows of 7 texts")


def test_a_finished_experiment_reads_each_record_once(two_rows, data, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "check_cluster", lambda *_: None)
    monkeypatch.setattr(experiment, "fitted", lambda execution: execution)
    stages, seen, read = unique([own.metrics for own in two_rows.stages.values()]), Counter(), storage.read_record
    monkeypatch.setattr(storage, "read_record", lambda uri, **own: seen.update([uri]) or read(uri, **own))
    flow = small_flow(data, tmp_path)
    found = experiment.run(
        list(two_rows.stages), flow, name="x", tracking_uri=empty_store(tmp_path), ensembles=["ours"]
    )
    found.show(View(against="ours"), str(tmp_path / "out"))
    wanted = [storage.join(each.folder(two_rows.root), RECORD) for each in stages]
    assert {uri: count for uri, count in seen.items() if uri.endswith(RECORD)} == dict.fromkeys(wanted, 1)
