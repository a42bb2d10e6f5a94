"""What a report tells beside the scores: read from records, and of this run without its secrets."""

from dataclasses import replace

import pytest
from page_reading import Page
from small import small_flow, small_recipe

from tlm_ray import Data, Place, storage
from tlm_ray.compute import Compute
from tlm_ray.plain import TfIdf
from tlm_ray.report import View
from tlm_ray.retrieval.methods import Given
from tlm_ray.runs.cli.table import Table
from tlm_ray.runs.flow.training import Training
from tlm_ray.runs.outcome import Outcome
from tlm_ray.runs.recipes.space import Space
from tlm_ray.runs.stages.provenance import describe_run, shown_command
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import RECORD
from tlm_ray.runs.telling import Teller, settings_of
from tlm_ray.training.encoders.starts import Pretrained

FACTS = {
    "task": {"train_bytes": 1000, "train_rows": 40, "dev_rows": 8, "test_rows": 9, "test_in_train": 2},
    "neighbours": {"selected": 80, "rank_bytes": [10] * 10, "sources": {"part": 60, "other": 20}},
    "stage_one": {
        "parameters": 7,
        "seconds": 5.0,
        "history": [{"step": 4, "task": 2.0, "dev": 41.0, "tokens_per_s": 9.0}],
    },
    "stage_two": {"parameters": 7, "seconds": 5.0, "history": [{"step": 3, "task": 1.0}]},
    "metrics": {"dev": 60.0, "test": 50.0, "metric": "accuracy", "seconds": 1.0, "chosen": {"features": "words 1-2"}},
}
SECONDS = {"stage_one": 1800.0, "stage_two": 900.0}


@pytest.fixture
def stages(data, tmp_path):
    """Two seeds of a row, another row that differs in stage two, and a plain classifier; all recorded."""
    flow = small_flow(data, tmp_path)
    longer = replace(small_recipe(), stage_two=replace(small_recipe().stage_two, steps=9))
    trainings = [Training(row="TLM", task="topics", recipe=small_recipe(), seed=seed) for seed in range(2)]
    trainings += [
        Training(row="longer", task="topics", recipe=longer),
        Training(row="x", task="topics", recipe=TfIdf()),
    ]
    laid_out = {one: one.stages(flow) for one in trainings}
    for each in {each for own in laid_out.values() for each in own.metrics.upstream()}:
        record = {"recipe": each.recipe, "facts": FACTS.get(each.name, {}), "seconds": SECONDS.get(each.name, 1.0)}
        storage.write_record(storage.join(each.folder(str(tmp_path)), RECORD), record)
    return laid_out


@pytest.fixture
def story(stages, tmp_path):
    return Teller(stages=stages, records=Records(str(tmp_path))).story(Compute(workers=2))


def test_each_stage_is_told_once_for_the_first_row_that_has_it(story):
    told = [(each.row, each.seed, each.stage) for each in story.learned]
    assert told == [
        ("TLM", 0, "stage one"), ("TLM", 0, "stage two"), ("TLM", 1, "stage one"), ("TLM", 1, "stage two"),
        ("longer", 0, "stage two"),
    ]  # fmt: skip
    assert story.learned[0].history == [{"step": 4, "task": 2.0, "dev": 41.0}], "curves alone"


def test_costs_are_those_of_every_stage_once(stages, story):
    one, two = stages[next(iter(stages))].trained
    assert len({each.fingerprint for each in story.made}) == len(story.made)
    trained = [each for each in story.made if each.flops]
    assert sorted(each.name for each in trained) == ["stage_one"] * 2 + ["stage_two"] * 3
    assert {each.flops for each in trained} >= {42 * one.cost["tokens"], 42 * two.cost["tokens"]}
    assert list(story.hours.values()) == [pytest.approx(2 * (2 * 1800 + 3 * 900) / 3600)]
    assert next(iter(story.hours)).startswith("CPU hours")


def test_settings_text_and_rows_are_those_of_the_trainings(story):
    assert [(each.row, each.kind) for each in story.settings] == [
        ("TLM", "Recipe"), ("longer", "Recipe"), ("x", "TfIdf"),
    ]  # fmt: skip
    mine, longer = (each.values for each in story.settings[:2])
    assert {name for name in mine if mine[name] != longer[name]} == {"stage_two.steps"}
    chosen = story.settings[2].values
    assert (chosen["chosen: features"], chosen["seconds"]) == ("words 1-2", 1.0)
    assert mine["method"] == "Bm25" and mine["start.geometry.width"] == 32 and mine["k"] == 5
    assert [(each.row, each.k, each.passages, each.text_bytes) for each in story.selected] == [
        ("TLM", 5, None, 50), ("longer", 5, None, 50),
    ]  # fmt: skip
    assert story.selected[0].sources == {"part": 0.75, "other": 0.25}
    assert (story.tasks[0].rows, story.tasks[0].test_in_train) == ({"train": 40, "dev": 8, "test": 9}, 2)


def test_an_outcomes_page_has_its_story(stages, tmp_path, monkeypatch):
    class Watcher:
        def attach(self, files):
            self.files = list(files)

    outcome = Outcome(name="x", stages=stages, records=Records(str(tmp_path)), tracker=Watcher())  # type: ignore[arg-type]
    monkeypatch.setattr(Outcome, "notes", [])
    results = replace(make_results(outcome), notes=["n"])
    uris = outcome.publish(results, str(tmp_path / "out"))
    page = Page(storage.read_bytes(uris["x.html"]).decode())
    assert "chosen: features" in page.text("dt") and "words 1-2" in page.text("dd")
    assert page.sections == ["answers", "table", "scores", "learning", "recipes", "data", "cost", "provenance"]
    assert uris["x.html"] in outcome.tracker.files


def make_results(outcome):
    from tlm_ray.report import Results

    return Results(cells=[replace(group.cell(), x=None) for group in outcome.groups], view=View())


def test_a_command_is_told_without_secrets():
    told = shown_command(
        ["x.py", "--root", "s3://key:pa@ss@bucket/tlm?secret_key=abc&region=eu", "--token=abc", "--hub-token", "abc",
         "def", "--tokens", "2000", "--tracking-uri=postgresql://me:abc@host/db", "--rows", "TLM, BM25 text"]
    )  # fmt: skip
    assert told == (
        "python x.py --root 's3://***@bucket/tlm?secret_key=***&region=eu' '--token=***' --hub-token '***' '***' "
        "--tokens 2000 '--tracking-uri=postgresql://***@host/db' --rows 'TLM, BM25 text'"
    )


def test_a_run_says_where_it_was(monkeypatch):
    monkeypatch.setattr("sys.argv", ["x.py", "--root", "s3://key:secret@bucket"])
    run = describe_run("s3://key:secret@bucket")
    assert run.command == "python x.py --root 's3://***@bucket'" and run.root == "s3://***@bucket"
    assert set(run.versions) >= {"python", "torch", "ray", "transformers"} and "CPUs" in run.hardware["processor"]


def test_settings_are_told_without_the_credentials_of_a_given_file():
    recipe = small_recipe(method=Given(location="s3://KEY:secret@bucket/x.csv?secret_key=abc"))
    told = str(settings_of(recipe))
    assert "bucket/x.csv" in told and "secret@" not in told and "abc" not in told


@pytest.mark.parametrize("path", ["start", "tokenizer"])
def test_points_of_a_sweep_are_kept_without_credentials(path):
    locations = [f"s3://KEY:secret@bucket/{name}?secret_key=abc" for name in ("one", "two")]
    space = Space(values={path: [Pretrained(uri) if path == "start" else uri for uri in locations]})
    labels = [space.labels(point) for point in space.points()]
    assert "bucket/one" in str(labels) and "secret@" not in str(labels) and "abc" not in str(labels)
    assert [space.point(each) for each in labels] == list(space.points())


class Rivals(Table):
    """One encoder, by its location."""

    name = "rivals"

    def vary(self, recipe):
        return {"s3://KEY:secret@bucket/model": recipe}

    def expected(self, rows):
        return []


def test_rows_are_named_without_credentials(data, tmp_path):
    table = Rivals(data=Data(tasks=["topics"], task_root=str(data / "tasks")), place=Place(root=str(tmp_path)), seeds=1)
    assert [one.row for one in table.trainings(small_flow(data, tmp_path))][-1] == "s3://***@bucket/model"
