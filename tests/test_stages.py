"""Stages: what identifies a result, what does not, and what is found again."""

import hashlib
import json
import math
from dataclasses import make_dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlm_ray import storage
from tlm_ray.retrieval import Analyzer
from tlm_ray.retrieval.methods import Bm25
from tlm_ray.runs.recipes.cpu import TINY_RECIPE
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stage, canonical, flatten, plain, unique
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.loop.schedules import Schedule

STEADY = settings(
    max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def make_nothing(folder, inputs):
    return {}


def make_stage(name="blocks", *, version=1, inputs=None, parameters=None, **options):
    parameters = {"k": 20, "method": "bm25"} if parameters is None else parameters
    options = {"make": make_nothing} | options
    return Stage(name=name, version=version, parameters=parameters, inputs=inputs or {}, **options)


def write_record(stage, root, **changes):
    record = {"recipe": stage.recipe, "facts": {"rows": 3}} | changes
    storage.write_record(storage.join(stage.folder(root), "record.json"), record)
    return record


def schedule(**changes):
    base = {"steps": 9, "batch_rows": 4, "learning_rate": 1e-3, "warmup_steps": 1, "weight_decay": 0.1}
    return Schedule(**(base | {"evaluate_every": 3} | changes))


@pytest.mark.parametrize(
    "other",
    [
        make_stage("passages"),
        make_stage(version=2),
        make_stage(parameters={"k": 21, "method": "bm25"}),
        make_stage(parameters={"k": 20, "method": "random"}),
        make_stage(parameters={"k": 20}),
        make_stage(parameters={"k": 20, "method": "bm25", "more": None}),
        make_stage(inputs={"task": make_stage("task")}),
        make_stage(inputs={"task": make_stage("task", version=2)}),
        make_stage(inputs={"corpus": make_stage("task")}),
        make_stage(inputs={"task": make_stage("task", inputs={"documents": make_stage("documents")})}),
    ],
    ids=["name", "version", "number", "word", "less", "more", "input", "its version", "its name", "its input"],
)
def test_name_version_parameters_and_inputs_each_change_the_fingerprint(other):
    others = [make_stage(), make_stage(inputs={"task": make_stage("task", parameters={})})]
    assert other.fingerprint not in {stage.fingerprint for stage in others}


def test_every_field_of_a_recipe_and_of_what_it_holds_changes_the_fingerprint():
    tiny = TINY_RECIPE
    base = make_stage(parameters={"recipe": tiny})
    changed = [
        make_stage(parameters={"recipe": replace(tiny, **change)}).fingerprint
        for change in ({"k": tiny.k - 1}, {"rho1": tiny.rho1 + 1}, {"rho2": tiny.rho2 + 0.5}, {"scale": "other"},
                       {"start": Scratch(replace(tiny.start.geometry, dropout=0.25))},
                       {"stage_one": replace(tiny.stage_one, evaluate_every=tiny.stage_one.evaluate_every + 1)},
                       {"method": Bm25(analyzer=Analyzer(stemmer="english"))})
    ]  # fmt: skip
    assert len({base.fingerprint, *changed}) == len(changed) + 1


def test_how_often_a_training_says_how_far_it_is_is_no_part_of_it():
    often = replace(TINY_RECIPE.stage_one, log_every=1)
    same = [
        make_stage(parameters={"recipe": replace(TINY_RECIPE, stage_one=one)}) for one in (TINY_RECIPE.stage_one, often)
    ]
    assert same[0].fingerprint == same[1].fingerprint


@pytest.mark.parametrize(
    "same",
    [
        make_stage(make=print),
        make_stage(cost={"flops": 1e15}),
        make_stage(lane="train"),
        make_stage(parameters={"method": "bm25", "k": 20}),
        make_stage(parameters={"method": "bm25", "k": 20.0}),
    ],
    ids=["make", "cost", "lane", "order", "20.0 for 20"],
)
def test_nothing_else_changes_the_fingerprint(same):
    assert same.fingerprint == make_stage().fingerprint


def test_inputs_are_named_not_ordered():
    task, passages = make_stage("task"), make_stage("passages")
    one, other = {"a": task, "b": passages}, {"b": passages, "a": task}
    assert make_stage(inputs=one).fingerprint == make_stage(inputs=other).fingerprint
    assert make_stage(inputs=one).fingerprint != make_stage(inputs={"a": passages, "b": task}).fingerprint


def test_the_fingerprint_is_sha256_of_sorted_json_of_the_recipe():
    task = make_stage("task", parameters={})
    stage = make_stage(inputs={"task": task}, parameters={"b": [1, 2.5, None, True], "a": "é"})
    expected = (
        f'{{"inputs":{{"task":"{task.fingerprint}"}},"parameters":{{"a":"é","b":[1,2.5,null,true]}},'
        '"stage":"blocks","version":1}'
    )
    assert stage.fingerprint == hashlib.sha256(expected.encode()).hexdigest()
    assert stage.folder("s3://bucket/root") == f"s3://bucket/root/blocks/{stage.fingerprint[:20]}"


@STEADY
@given(JSON)
def test_canonical_json_reads_back_and_is_one_text(value):
    text = canonical(plain(value, "x"))
    assert json.loads(text) == value
    assert canonical(plain(json.loads(text), "x")) == text


@STEADY
@given(st.dictionaries(st.text(), JSON, min_size=2, max_size=6), st.randoms())
def test_the_order_of_a_mapping_does_not_matter(value, random):
    items = list(value.items())
    random.shuffle(items)
    assert canonical(plain(dict(items), "x")) == canonical(plain(value, "x"))


class Thing:
    """An object that has a default repr, with an address in it."""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "parameter blocks.x is nan: NaN never equals itself; give a finite number"),
        (math.inf, "parameter blocks.x is inf"),
        ([1, {"y": -math.inf}], r"parameter blocks.x\[1\].y is -inf"),
        (print, "parameter blocks.x is a builtin_function_or_method: only numbers, .* give its name"),
        (lambda: 0, "parameter blocks.x is a function"),
        (Thing(), "parameter blocks.x is a Thing: only numbers, strings"),
        ({"inner": Thing()}, "parameter blocks.x.inner is a Thing"),
        (Schedule, "parameter blocks.x is a type"),
        ({1, 2}, "parameter blocks.x is a set"),
        (b"bytes", "parameter blocks.x is a bytes"),
        (np.int64(3), "parameter blocks.x is a int64"),
        (np.zeros(2), "parameter blocks.x is a ndarray"),
        (replace(TINY_RECIPE, rho2=math.inf), "parameter blocks.x.rho2 is inf"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,  # without addresses
)
def test_what_does_not_identify_a_result_is_refused_by_name(value, message):
    with pytest.raises(ValueError, match=message):
        _ = make_stage(parameters={"x": value}).fingerprint


def test_dataclasses_are_told_apart_by_type_and_fields():
    value = plain(Analyzer(), "x")
    assert value == {"type": "Analyzer"} | {name: getattr(Analyzer(), name) for name in value if name != "type"}
    one, other = (make_dataclass(name, [("steps", int)])(3) for name in ("Schedule", "Geometry"))
    assert plain(one, "x") != plain(other, "x")
    assert canonical(plain(schedule(), "x")) == canonical(plain(schedule(), "x"))
    assert canonical(plain(schedule(), "x")) != canonical(plain(schedule(evaluate_every=11), "x"))


def test_upstream_lists_inputs_first_and_unique_each_once():
    task, passages = make_stage("task"), make_stage("passages")
    blocks = make_stage("blocks", inputs={"task": task, "passages": passages})
    one = make_stage("stage_one", inputs={"blocks": blocks})
    two = make_stage("stage_two", inputs={"blocks": blocks, "stage_one": one})
    other = make_stage("stage_two", version=2, inputs={"blocks": make_stage("blocks", inputs=blocks.inputs)})
    listed = unique([two, other])
    assert [s.name for s in listed] == ["task", "passages", "blocks", "stage_one", "stage_two", "stage_two"]
    assert list(two.upstream())[-1] is two


def test_a_record_is_completion(tmp_path):
    stage, root = make_stage(), str(tmp_path)
    assert stage.record(root) is None
    storage.write_json(storage.join(stage.folder(root), "facts.json"), {})
    assert stage.record(root) is None, "a folder without a record is unfinished work"
    written = write_record(stage, root)
    assert stage.record(root) == written


@pytest.mark.parametrize("changes", [{"recipe": {}}, {"recipe": make_stage(version=2).recipe}])
def test_a_record_of_another_recipe_is_an_error_that_names_the_folder(tmp_path, changes):
    stage, root = make_stage(), str(tmp_path)
    write_record(stage, root, **changes)
    with pytest.raises(ValueError, match=f"is of another recipe .* delete the folder '{stage.folder(root)}'"):
        stage.record(root)


def test_a_record_cut_short_is_an_error_that_names_the_file(tmp_path):
    stage, root = make_stage(), str(tmp_path)
    storage.write_bytes(storage.join(stage.folder(root), "record.json"), b'{"recipe": {')
    with pytest.raises(ValueError, match=r"record.json' is not JSON"):
        stage.record(root)


def test_recipes_survive_the_record_whatever_their_numbers(tmp_path):
    numbers = {"a": 0.1 + 0.2, "b": 1e-300, "c": 2**70, "d": -0.0, "e": (1, 2), "f": {"x": None}, "g": 1e22}
    stage, root = make_stage(parameters=numbers), str(tmp_path)
    write_record(stage, root)
    assert stage.record(root)["facts"] == {"rows": 3}


def test_a_stage_is_found_only_with_all_that_it_was_made_from(tmp_path):
    task, root = make_stage("task"), str(tmp_path)
    blocks = make_stage("blocks", inputs={"task": task})
    one, other = make_stage("stage_one", inputs={"blocks": blocks}), make_stage("other", inputs={"task": task})
    for stage in (task, blocks, one, other):
        write_record(stage, root)
    assert set(Records(root).found([one, other])) == {s.fingerprint for s in (task, blocks, one, other)}
    storage.delete(blocks.folder(root))
    assert set(Records(root).found([one, other])) == {task.fingerprint, other.fingerprint}
    storage.delete(task.folder(root))
    assert Records(root).found([one, other]) == {}


def test_settings_are_told_by_their_paths():
    made = flatten({"start": TINY_RECIPE.start, "objectives": [{"type": "Mlm", "share": 0.3}], "ks": (1, 2)})
    told = dict(made)
    assert told["start"] == "Scratch" and told["start.geometry.layers"] == 2
    assert (told["objectives[0]"], told["objectives[0].share"], told["ks"]) == ("Mlm", 0.3, (1, 2))
    assert dict(flatten({"objectives": [{"share": 0.3}]}, lists=False)) == {"objectives": [{"share": 0.3}]}


def test_a_record_is_read_once_and_a_missing_one_looked_for_again(tmp_path, monkeypatch):
    task = make_stage("task")
    lasts = [make_stage("stage_one", inputs={"task": task}, version=version) for version in range(1, 9)]
    asked, read = [], storage.read_record
    monkeypatch.setattr(storage, "read_record", lambda uri: asked.append(uri) or read(uri))
    records = Records(str(tmp_path))
    assert records.of(task) is None and records.found(lasts) == {} and len(asked) == 2
    for stage in (task, *lasts[:7]):
        write_record(stage, records.root)
    assert len(records.found(lasts)) == 8 and len(asked) == 11
    assert records.found(lasts[:7]).keys() == {stage.fingerprint for stage in (task, *lasts[:7])}
    assert records.facts(task) == {"rows": 3} and records.facts(None) == records.facts(lasts[7]) == {}
    assert len(records.named("stage_one")) == 7 and len(asked) == 12, "only the missing one"
    storage.delete(task.folder(records.root))
    records.forget(task)
    assert records.of(task) is None


def test_a_kinds_records_are_those_of_its_stages_alone(tmp_path):
    stage, root = make_stage("neighbours"), str(tmp_path)
    write_record(stage, root)
    storage.write_record(storage.join(stage.folder(root), "index", "record.json"), {"of": "an index"})
    assert [record["recipe"] for record in Records(root).named("neighbours")] == [stage.recipe]
    assert Records(root).named("nosuch") == []
