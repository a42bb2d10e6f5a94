"""The command lines of the experiments: each flag does something, or is not there, or says what is wrong."""

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_plan import record

from tlm_ray import Budget, Changes, Cluster, Data, Mixture, Passages, Place, TrainingOptions, open_flow, parse
from tlm_ray.compute import Compute
from tlm_ray.console import print_once
from tlm_ray.runs.planning.estimates import CPU_FLOPS_PER_S
from tlm_ray.runs.recipes.budget import recipe_parameters, recipe_tokens, scaled
from tlm_ray.runs.recipes.cpu import TINY_RECIPE
from tlm_ray.runs.recipes.paper import recipe_for

SCRIPTS = {
    "adapted": "Adapted",
    "cleaning": "CleaningTable",
    "repeats": "Repeats",
    "attention_heads": "AttentionHeads",
    "batch_rows": "BatchRows",
    "depth": "Depth",
    "frontier": "Frontier",
    "distillation": "Distillation",
    "main_table": "MainTable",
    "flops": "Flops",
    "glue": "Glue",
    "k": "K",
    "pairs": "Pairs",
    "paper": "Paper",
    "pretrained": "PretrainedTable",
    "retrieval": "Retrieval",
    "rho1": "Rho1",
    "objectives": "Objectives",
    "rho2": "Rho2",
    "rivals_pretrained": "Rivals",
    "stage_one": "StageOne",
    "stage_two": "StageTwo",
    "sweep": "Sweep",
    "train": "Train",
    "retrieved_cases": "RetrievedCases",
}


@pytest.fixture(scope="module")
def kinds():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1] / "experiments")
        yield {name: getattr(importlib.import_module(name), kind) for name, kind in SCRIPTS.items()}


@pytest.fixture
def parsed(kinds, monkeypatch):
    """Parse a script's command line."""

    def read(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        return parse(kinds[script], "")

    return read


@pytest.fixture
def refused(parsed, capsys):
    """Return what a refused command line prints, in one line."""

    def read(script, *arguments):
        with pytest.raises(SystemExit) as ended:
            parsed(script, *arguments)
        assert ended.value.code == 2
        said = capsys.readouterr()
        return " ".join((said.out + said.err).replace("│", " ").split())  # a box stands around it, or not

    return read


def test_a_model_does_not_overwrite_its_teacher_or_its_start(refused, parsed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("m/seed-0", "m2"):
        (tmp_path / folder).mkdir(parents=True)
    for read in (["--teachers", "m"], ["--teachers", "m2", "m/seed-0"], ["--start", "m"], ["--start", "m/seed-0"]):
        said = refused("train", "--model", "m", *read).replace(" ", "")
        assert f"wouldoverwrite{tmp_path}/{read[-1]},whichisread;giveanotherfolder" in said
    assert parsed("train", "--model", "m", "--teachers", "m2", "--start", "m3").teachers == [f"{tmp_path}/m2"]
    assert parsed("train", "--model", "m", "--start", "m2").start == "m2"


def test_who_asks_for_a_student_is_not_told_to_ask_for_one(refused):
    said = [refused("train", "--register", "x", "--ensemble", *more) for more in ([], ["--student"])]
    assert ["or use --student" in each for each in said] == [True, False]


def test_the_main_table_takes_the_flags_of_its_contract(parsed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = parsed(
        *("main_table", "--scale", "mini", "--tasks", "sciie", "own/task", "--corpus", "hf://datasets/some/text"),
        *("--root", "r", "--seeds", "5", "--dry-run", "--train-resources", "CPU=4", "GPU=1", "--k", "7"),
    )
    assert options.changes.scale == "mini" and options.passages.k == 7
    assert options.data.tasks == ["sciie", f"{tmp_path}/own/task"] and options.data.corpus == [
        "hf://datasets/some/text"
    ]
    assert (options.place.root, options.place.out) == (f"{tmp_path}/r", f"{tmp_path}/results")
    assert options.seeds == 5 and options.dry_run
    assert options.cluster.execution(options.place).compute.resources == {"CPU": 4.0, "GPU": 1.0}
    below = parsed("main_table", "--tasks", "a/b", "--task-root", "tasks")
    assert below.data.tasks == ["a/b"] and below.data.task_root == f"{tmp_path}/tasks"


def test_help_shows_flags_in_groups(parsed, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit):
        parsed("main_table", "--help")
    said = capsys.readouterr().out
    titles = re.findall(r"^\W+(\w+) options\W*$", said, re.M)  # with or without a box around them
    assert titles == ["data", "changes", "passages", "budget", "place", "cluster", "mixture"]
    assert "--data." not in said and "--tasks NAME ..." in said


ABSENT = {
    "main_table": "encoder methods model",
    "train": "encoder methods baseline out",
    "k": "encoder baseline methods",
    "stage_two": "rho2s baseline",
    "sweep": "k rho1 rho2 external-only",
    "rivals_pretrained": "corpus column scale k steps tokens minutes methods",
    "retrieved_cases": "seeds dry-run steps tokens minutes train-workers precision rho1 tracking-uri side-by-side",
}


@pytest.mark.parametrize(("script", "flag"), [(script, flag) for script in ABSENT for flag in ABSENT[script].split()])
def test_a_flag_that_a_script_would_ignore_is_not_there(refused, script, flag):
    value = [] if flag in ("external-only", "dry-run") else ["5"]
    assert f"Unrecognized options: --{flag}" in refused(script, f"--{flag}", *value)


def test_who_gives_a_training_the_folder_of_tables_is_told_that_of_the_model(refused, parsed):
    assert "--out: a script without tables has no --out; a trained model is --model" in refused(
        "train", "--out", "my-model"
    )
    assert parsed("train", "--price", "3", "--dry-run").price == 3


@pytest.mark.parametrize("script", ["train", "retrieved_cases"])
def test_a_script_about_one_task_refuses_two(refused, script):
    assert "--tasks a b: must be one task; main_table.py takes several" in refused(script, "--tasks", "a", "b")


REFUSED = [
    ("main_table", "--tasks a b a", "--tasks a b a: a is given twice; give it once"),
    ("pretrained", "--gururangan", "--gururangan: needs a pretrained encoder; give --start too"),
    (
        "train",
        "--register ours --ensemble",
        "--register ours: registers one model; leave out --ensemble",
    ),
    ("train", "--before tapt", "--before tapt: applies to a pretrained encoder; give --start too"),
    ("train", "--price 3", "--price 3: is for --dry-run; add that, or leave it out"),
    ("rivals_pretrained", "--encoder x --price 3", "--price 3: is for --dry-run; add that, or leave it out"),
    ("rho2", "--seeds 0", "--seeds 0: must be 1 or more"),
    ("train", "--seeds 0", "--seeds 0: must be 1 or more"),
    ("main_table", "--seeds 0", "--seeds 0: must be 1 or more"),
    ("train", "--seeds 1 --student", "--student --seeds 1: one model is not an ensemble; give --seeds 2 or more"),
    ("train", "--seeds 1 --student --ensemble", "--student --seeds 1: one model is not an ensemble"),
    ("train", "--ensemble --student --register x", "--register x: registers one model; leave out --ensemble"),
    ("frontier", "--teacher-seeds 2", "--teacher-seeds 2: applies to --student-of; give that, too"),
    ("main_table", "--student-layers 2", "--student-layers 2: applies to --student-of; give that, too"),
    ("frontier", "--student-of TLM --student-layers 2 2", "--student-layers 2 2: give numbers of 0 or more, each once"),
    ("frontier", "--student-of TLM --student-layers -1", "--student-layers -1: give numbers of 0 or more, each once"),
    ("frontier", "--layers 2", "--layers 2: applies to a pretrained encoder; give --start too"),
    ("adapted", "--start x --layers 0", "--layers 0: must be 1 or more"),
    ("train", "--layers 2", "--layers 2: applies to --start; give that, too"),
    ("train", "--new-words 9", "--new-words 9: applies to --start; give that, too"),
    ("adapted", "--start x --new-words 0", "--new-words 0: must be 1 or more"),
    ("train", "--start x --layers 2 --new-words 9", "--new-words 9: --layers 2 trims the pieces; give one of them"),
    ("adapted", "--start x --layers 2 --new-words 9", "--new-words 9: --layers 2 trims the pieces; give one of them"),
    ("train", "--start x --layers 0", "--layers 0: must be 1 or more"),
    ("train", "--student-layers 2 --student", "--student-layers 2: applies to --start; give that, too"),
    ("train", "--start x --student-layers 2", "--student-layers 2: applies to --student; give that, too"),
    ("adapted", "--start x --student-of x --teacher-seeds 0", "--teacher-seeds 0: must be 1 or more"),
    ("main_table", "--before mlm tapt", "--before mlm tapt: applies to pretrained encoders; give --baseline too"),
    (
        "main_table",
        "--rows best",
        "--rows 'best': allowed are 'TF-IDF + linear model', 'windows of the marks + linear model', 'BM25",
    ),
    ("main_table", "--metric macro_f1", "--metric macro_f1: is for --tasks of your own"),
    ("main_table", "--k 0", "--k 0: rows that differ in general text would be one training"),
    ("main_table", "--rho1 0", "--rho1 0: rows that differ in general text would be one training"),
    *((script, "--rho1 0", "--rho1 0: rows that differ in general text would") for script in ("retrieval", "k")),
    *((script, "--k 0", "--k 0: rows that differ in general text would be") for script in ("cleaning", "repeats")),
    ("adapted", "--start x --k 0", "--k 0: rows that differ in general text would be one training"),
    ("adapted", "--start x --architecture y", "y: --start is the encoder; leave it out"),
    ("train", "--start x --architecture y", "y: --start is the encoder; give one of them"),
    ("distillation", "--minutes 3", "--minutes 3: the teacher takes longer; give --steps or --tokens"),
    ("objectives", "--row-tokens 37 0", "--row-tokens 37 0: give both means, of general and of task rows, from 1 on"),
    ("main_table", "--column body", "--column body: names a column of --corpus; give --corpus too"),
    ("main_table", "--rho1 3 --external-only", "--rho1 3: has no effect with --external-only"),
    ("main_table", "--tokens 1 --minutes 1", "--tokens and --minutes: each sets the budget; give one"),
    ("main_table", "--part 0.5 --minutes 1", "--minutes and --part: each sets the budget; give one of them"),
    ("main_table", "--part 1", "--part 1: must be less than 1, a share of the recipe's tokens"),
    ("main_table", "--part nan", "--part nan: must be more than 0"),
    ("main_table", "--minutes -1", "--minutes -1: must be more than 0"),
    ("main_table", "--tokens 0", "--tokens 0: must be more than 0"),
    ("main_table", "--depth 0", "--depth 0: must be 1 or more"),
    ("attention_heads", "--rows 0", "--rows 0: must be 1 or more (number of dev texts)"),
    ("attention_heads", "--marks", "--marks: adds no attention head"),
    ("flops", "--parts 0.5 2", "--parts 2: must be above 0 and at most 1, a share of a recipe's tokens"),
    (
        "flops",
        "--minutes 3 --scales mini midi",
        "--minutes 3: gives every scale the same time; give --tokens instead",
    ),
    ("flops", "--scale tiny --scales mini midi", "--scale tiny: has no effect with --scales; leave it out"),
    ("stage_one", "--external-only", "--external-only: has no task batches for the row 'rho2 = 0'; choose others by"),
    (
        "sweep",
        "--vary stage_one.batch_rows=9 --batch-rows 4",
        "--batch-rows: has no effect with --vary stage",
    ),
    ("batch_rows", "--tokens 9", "--tokens 9: may change the rows per step; give --steps or --minutes"),
    ("batch_rows", "--part 0.5", "--part 0.5: may change the rows per step; give --steps or --minutes"),
    ("main_table", "--batch-rows 0", "--batch-rows 0: must be 1 or more (rows per step)"),
    ("batch_rows", "--batch-rows 16", "--batch-rows: is what this experiment varies; give --sizes"),
    ("train", "--start x --batch-rows 16", "--batch-rows: is for trainings from random weights; leave it out"),
    ("adapted", "--start x --batch-rows 16", "--batch-rows: is for trainings from random weights; leave it out"),
    ("depth", "--layers 4 2", "--layers 4 2: give one or more from 1 on, smallest first"),
    ("depth", "--layers 2 2", "--layers 2 2: give one or more from 1 on, smallest first"),
    ("depth", "--minutes 3", "--minutes 3: rows with all steps take longer; give --steps"),
    ("pretrained", "--start x --gururangan --tokens 9", "--gururangan: sets the steps itself; leave out --tokens"),
    ("frontier", "--larger midi --minutes 3", "--minutes 3: gives every row the same time; leave out --larger"),
    ("frontier", "--before plain", "--before plain: applies to a pretrained encoder; give --start too"),
    ("frontier", "--parts 0.5 1", "--parts 1: must be between 0 and 1, a share of the recipe's tokens"),
    ("k", "--k 7 --ks 5 50", "--k 7: is not among --ks 5 50; give --ks alone"),
    ("k", "--depth 5 --ks 5 50", "--depth 5: must be the largest of --ks, 50, or more"),
    ("retrieval", "--corpora a=x --corpus y", "--corpora: replaces --corpus and --shares; drop these"),
    ("rho2", "--rho2 3", "--rho2: is what this experiment varies; give --rho2s"),
    ("rho1", "--rho1 3", "--rho1: is what this experiment varies; give --rho1s"),
    ("rho2", "--external-only", "--external-only: leaves out the task batches whose rho2 this experiment varies"),
    ("sweep", "--search halving", "invalid choice 'halving'"),
    ("sweep", "--vary vocabulary", "--vary 'vocabulary': give FIELD=VALUES, such as vocabulary=4000,8000"),
    ("sweep", "--vary k=3", "--vary k=3: has its own flag; give --ks"),
    ("sweep", "--vary precision=fp32,bf16 --precision fp32", "--precision: has no effect with --vary precision=fp32,"),
    ("sweep", "--vary stage_one.steps=9 --steps 7", "--steps: has no effect with --vary stage_one.steps=9; leave it"),
    ("sweep", "--vary depth=50,90 --depth 90", "--depth: has no effect with --vary depth=50,90; leave it out"),
    ("sweep", "--warm-start", "--warm-start: needs --search optuna, not grid"),
    ("sweep", "--money 3", "money and price: give both"),
    ("sweep", "--encoder x", "--encoder x: is used by the method dense only; add dense to --methods"),
]


@pytest.mark.parametrize(("script", "arguments", "message"), REFUSED)
def test_what_would_change_nothing_or_cannot_be_is_refused(refused, script, arguments, message):
    assert message in refused(script, *arguments.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--ks 5 20 --k 7", "--k 7: is not among --ks 5 20"),
        ("--parts 0", "--parts 0: must be above 0"),
        ("--rho1s 1 -1", "rho1 -1: "),
    ],
)
def test_what_the_papers_last_table_refuses_is_told_before_the_first(kinds, monkeypatch, tmp_path, words, message):
    paper = importlib.import_module(kinds["paper"].__module__)
    monkeypatch.setattr(sys, "argv", ["paper", *words.split(), "--root", str(tmp_path)])
    monkeypatch.setattr(paper, "present", lambda table, connect: pytest.fail(f"{table.name} begins"))
    with pytest.raises(ValueError, match=re.escape(message)):
        paper.main()


def test_an_error_in_one_table_keeps_the_summary_of_those_before(kinds, monkeypatch, tmp_path):
    def present(table, connect):
        if table.name == "rho2":
            raise OSError("lost")
        return SimpleNamespace(verdicts=[])

    paper = importlib.import_module(kinds["paper"].__module__)
    monkeypatch.setattr(paper, "present", present)
    folders = ["--root", f"{tmp_path}/r", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["paper", "--only", "k", "rho2", *folders])
    with pytest.raises(OSError, match="lost"):
        paper.main()
    assert (tmp_path / "paper.md").exists()


@pytest.mark.parametrize(
    ("before", "words"),
    [
        *(("plain", words) for words in ("--steps 9", "--clean", "--rho2 3", "--k 3", "--rho1 2")),
        *(
            ("mlm", "--k 3"),
            ("tapt", "--depth 9"),
            ("tapt", "--rho2 3"),
            ("dapt", "--rho1 2"),
            ("dapt+tapt", "--external-only"),
        ),
    ],
)
def test_what_a_pretrained_encoder_does_not_read_is_refused_if_it_is_trained_like_this_first(parsed, before, words):
    refuse = importlib.import_module("train").refuse_unread
    options = parsed("train", "--start", "x", "--before", before, *words.split())
    option = words.split()[0]
    with pytest.raises(ValueError, match=f"^{option}: has no effect with --start and --before {re.escape(before)}; "):
        refuse(options, before)
    with pytest.raises(ValueError, match=f"^{option}: has no effect with --start and no --corpus; leave it out"):
        refuse(parsed("train", "--start", "x", *words.split()), before)
    refuse(options, "adapted")
    refuse(parsed("train", "--start", "x", "--steps-two", "9"), before)


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (["gpu=1"], "--train-resources 'gpu=1': Ray spells it GPU; give GPU=1"),
        (["CPU=0"], "--train-resources CPU=0: a worker needs more than 0; give CPU=1"),
        (["CPU"], "--train-resources 'CPU': must be NAME=AMOUNT"),
        (["CPU=-1"], "--train-resources 'CPU=-1': must be NAME=AMOUNT"),
        (["CPU=nan"], "--train-resources 'CPU=nan': must be NAME=AMOUNT"),
        (["CPU=1", "CPU=2"], "--train-resources CPU=1 CPU=2: CPU is given twice"),
    ],
)
def test_resources_that_no_worker_can_have_are_refused(resources, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Cluster(train_resources=resources).execution(Place())


def test_what_a_training_runs_on_is_passed_on():
    training = {"micro_rows": 4, "packed": True, "sharded": True}
    cluster = Cluster(**training, train_workers=2, least_train_workers=1, side_by_side=3, workers=5, shards=7)
    execution = cluster.execution(Place(root="root", shared_root=True))
    assert execution.compute == Compute(**training, workers=2, least_workers=1)
    assert (execution.side_by_side, execution.workers, execution.shards, execution.shared_root) == (3, 5, 7, True)
    with pytest.raises(ValueError, match="autoscaling: give workers too"):
        Cluster(autoscaling=True).execution(Place())
    with pytest.raises(ValueError, match="autoscaling: give side_by_side too"):
        Cluster(autoscaling=True, workers=4).execution(Place())


def recipe(root="root", data=Data(), **groups):  # noqa: B008 - frozen
    mixture, options = groups.pop("mixture", Mixture()), TrainingOptions(place=Place(root=str(root)), **groups)
    return options.recipe(data.tasks[0], open_flow(data, options.place, options.cluster), mixture)


def test_a_recipe_takes_what_the_command_line_changes():
    changed = recipe(
        changes=Changes(steps=40, steps_two=20, precision="fp32"),
        passages=Passages(k=7),
        mixture=Mixture(rho1=3, rho2=5.0),
    )
    one, two = (replace(s, steps=n, warmup_steps=n // 10) for s, n in
                ((TINY_RECIPE.stage_one, 40), (TINY_RECIPE.stage_two, 20)))  # fmt: skip
    assert changed == replace(TINY_RECIPE, stage_one=one, stage_two=two, precision="fp32", k=7, rho1=3, rho2=5.0)
    assert recipe() == TINY_RECIPE
    assert (recipe(passages=Passages(k=50)).depth, recipe(passages=Passages(depth=50)).depth) == (50, 50)
    assert recipe(mixture=Mixture(external_only=True)).rho1 is None


def seconds(recipe):
    """At the speed that is assumed before the first training."""
    return 6 * recipe_tokens(recipe) * recipe_parameters(recipe) / CPU_FLOPS_PER_S


def test_a_recipe_is_cut_to_tokens_or_minutes_and_the_changes_are_told_once(tmp_path, capsys):
    print_once.cache_clear()
    budget = Budget(tokens=2_000_000)
    assert recipe(budget=budget) == scaled(TINY_RECIPE, 2_000_000)[0] == recipe(budget=budget)
    told = [change for change in scaled(TINY_RECIPE, 2_000_000)[1] if "one" in change]
    assert capsys.readouterr().out.count("stage one: ") == len(told)
    asked = 0.5 * seconds(TINY_RECIPE)
    timed = recipe(tmp_path, budget=Budget(minutes=asked / 60))
    assert 0.9 * asked <= seconds(timed) <= asked
    assert capsys.readouterr().out.count("assuming 3e+11 FLOPs per second of each CPU worker") == 1


def test_minutes_give_the_same_recipe_again_and_others_the_recorded_speed(tmp_path):
    half, third = (Budget(minutes=share * seconds(TINY_RECIPE) / 60) for share in (1 / 2, 1 / 3))
    first = recipe(tmp_path, budget=half)
    flow = open_flow(Data(), Place(root=str(tmp_path)), Cluster())
    for stage in flow.stages(first, "docstrings", 0).trained:
        record(stage, str(tmp_path), 2 * stage.cost["flops"] / CPU_FLOPS_PER_S)  # half as fast as assumed
    assert recipe(tmp_path, budget=half) == first, "or a killed run would begin anew"
    slower = recipe(tmp_path, budget=third)
    assert 0.9 / 6 * seconds(TINY_RECIPE) <= seconds(slower) <= seconds(TINY_RECIPE) / 6
    assert len(list((tmp_path / "minutes").iterdir())) == 2, "a file each, so that no job overwrites another's"


@pytest.mark.parametrize("asked", ["", "mini", "midi"])
def test_minutes_choose_the_geometry_that_makes_more_of_them_unless_one_is_given(asked, data, tmp_path, capsys):
    print_once.cache_clear()
    topics = Data(tasks=["topics"], task_root=str(data / "tasks"), corpus=[str(data / "corpus")])
    whole = seconds(recipe(tmp_path, topics, changes=Changes(scale="midi"))) / 60
    for share, best in ((1.1, "midi"), (0.6, "midi"), (0.4, "mini"), (0.1, "mini")):
        minutes, scale = Budget(minutes=share * whole), asked or best
        found = recipe(tmp_path, topics, budget=minutes, changes=Changes(scale=asked))
        assert (found.scale, found.start) == (scale, recipe_for("topics", scale).start)
        assert seconds(found) <= 1.05 * 60 * share * whole
    assert capsys.readouterr().out.count("scale: midi instead of mini") == (not asked)
    assert recipe(tmp_path, budget=Budget(minutes=100 * whole)).scale == "tiny", "which is for the embedded task"


def test_too_few_minutes_are_answered_in_minutes(tmp_path):
    with pytest.raises(ValueError, match=r"minutes 0\.001: this recipe needs [\d.]+ or more; give more") as error:
        recipe(tmp_path, budget=Budget(minutes=0.001))
    least = float(str(error.value).split("needs ")[1].split(" or")[0])
    assert recipe_tokens(recipe(tmp_path, budget=Budget(minutes=least))) > 0
    with pytest.raises(ValueError, match=r"needs [\d.]+ or more"):
        recipe(tmp_path, budget=Budget(minutes=least - 0.01))


def test_a_table_of_baselines_alone_has_no_row_to_compare_with(kinds):
    assert kinds["main_table"](rows=["TF-IDF + linear model"], place=Place(root="r")).main_row([]) == ""


def test_rows_can_be_made_apart(kinds, tmp_path):
    options = kinds["main_table"](
        rows=["TLM, BM25 text", "x + TAPT"], baseline=["x"], before=["plain", "tapt"], seeds=2, place=Place(root="r")
    )
    made = options.trainings(options.flow())
    assert [(one.row, one.seed) for one in made] == [(row, seed) for row in options.rows for seed in (0, 1)]


ROWS = {
    "k": ([], "K = 50", [("K = 50", "task data only"), ("K = 50", "K = 1"), ("K = 50", "K = 5")]),
    "rho1": ([], "rho1 = 31", [("rho1 = 31", "rho1 = 1"), ("rho1 = 31", "general text only")]),
    "rho2": (["--rho2s", "20", "100"], "rho2 = 100", []),
    "batch_rows": ([], "recipe", [("16 rows per step", "recipe"), ("8 rows per step", "recipe")]),
    "stage_one": ([], "recipe", [("averaged", "recipe")]),
    "main_table": (["--rows", "TLM, BM25 text", "BM25 neighbours"], "TLM, BM25 text", []),
    "flops": (["--parts", "1", "--baseline", "x"], "TLM tiny", []),
    "pairs": (
        ["--start", "x", "--rows", "fine-tuned"],
        "student of a pair",
        [("student of a pair", "fine-tuned"), ("student of a pair", "fine-tuned, half")],
    ),
    "frontier": (["--larger", "mini"], "TLM", [("TLM", "TLM, 0.25 of it"), ("TLM", "TLM, 0.5 of it")]),
    "retrieval": (
        ["--methods", "bm25", "dsir", "random"],
        "bm25, 1 of the corpus",
        [
            ("bm25, 1 of the corpus", "random, 1 of the corpus"),
            ("bm25, 0.1 of the corpus", "random, 0.1 of the corpus"),
            ("bm25, 1 of the corpus", "bm25, 0.1 of the corpus"),
        ],
    ),
}


@pytest.mark.parametrize("script", ROWS)
def test_a_table_says_what_it_expects_and_whose_leads_it_tells(parsed, tmp_path, script):
    arguments, against, expected = ROWS[script]
    table = parsed(script, *arguments, "--root", str(tmp_path), "--seeds", "1")
    view = table.view(table.trainings(table.flow()))
    assert (view.against, list(view.expected)) == (against, expected)


def test_a_given_selection_is_one_row_whatever_the_corpora(parsed, tmp_path):
    table = parsed("retrieval", "--given", str(tmp_path / "x.csv"), "--root", str(tmp_path))
    rows = table.vary(recipe_for("docstrings", "tiny"))
    assert [row for row in rows if "given" in row] == ["given"] and len(rows) == 5


@pytest.mark.parametrize(
    ("script", "rows", "expected"),
    [
        ("objectives", ["T5, spans", "T5, tokens"], [("T5, spans", "T5, tokens")]),
        ("objectives", ["SOP"], []),
        ("depth", ["2 layers", "4 layers, all steps"], [("4 layers, all steps", "2 layers")]),
        ("depth", ["2 layers", "3 layers"], []),
        ("stage_one", ["recipe", "averaged"], [("averaged", "recipe")]),
        ("stage_one", ["rate x 4", "rho2 = 0"], []),
        ("distillation", ["teacher", "DistilBERT"], [("teacher", "DistilBERT")]),
        ("distillation", ["no teacher", "TinyBERT"], []),
    ],
)
def test_rows_can_be_chosen_by_name(parsed, tmp_path, script, rows, expected):
    table = parsed(script, "--rows", *rows, "--root", str(tmp_path))
    flow = table.flow()
    assert list(table.recipes("docstrings", flow)) == rows and table.expected(rows) == expected
    with pytest.raises(ValueError, match=f"--rows 'best': allowed are .*{rows[0]!r}"):
        parsed(script, "--rows", "best").recipes("docstrings", flow)


def test_larger_scales_take_the_tables_changes_and_are_others(parsed, tmp_path):
    table = parsed("frontier", "--larger", "mini", "--clean", "--k", "7", "--root", str(tmp_path))
    whole, larger = (table.recipes("docstrings", table.flow())[row] for row in ("TLM", "TLM mini"))
    assert (larger.scale, larger.k) == ("mini", 7) and larger.cleaning == whole.cleaning is not None
    with pytest.raises(ValueError, match="--larger tiny: give scales other than the table's own, each once"):
        own = parsed("frontier", "--larger", "tiny", "--root", str(tmp_path))
        own.recipes("docstrings", own.flow())


@pytest.mark.parametrize(("before", "rows"), [([], ["fine-tuned", "adapted"]), (["--before", "plain"], ["fine-tuned"])])
def test_a_pretrained_encoder_has_a_row_frozen_and_one_per_training_before(parsed, tmp_path, data, before, rows):
    own = ["--tasks", str(data / "tasks" / "topics"), "--corpus", str(data / "corpus"), "--parts", "--seeds", "1"]
    table = parsed("frontier", *own, "--start", "encoder", *before, "--root", str(tmp_path))
    trained = [one.row for one in table.trainings(table.flow())]
    assert [row for row in trained if row.startswith("encoder")] == [
        "encoder frozen",
        *(f"encoder {row}" for row in rows),
    ]


def test_each_row_of_stage_one_changes_one_setting(parsed, tmp_path):
    table = parsed("stage_one", "--root", str(tmp_path))
    rows = table.recipes("docstrings", table.flow())
    recipe = rows.pop("recipe")
    schedules = [vars(one.stage_one).items() - vars(recipe.stage_one).items() for one in rows.values()]
    assert [dict(changed) for changed in schedules] == [
        {"learning_rate": 2e-3},
        {"learning_rate": 4e-3},
        {"warmup_steps": 6},
        {"weight_decay": 0.1},
        {"weight_decay": 0.5},
        {"averaged": 0.5},
        {},
    ]
    assert [one.rho2 for one in rows.values()] == [20.0] * 6 + [0.0]


def test_depths_take_the_operations_of_the_first_or_its_steps(parsed, tmp_path):
    table = parsed("depth", "--layers", "2", "4", "--root", str(tmp_path))
    rows = table.recipes("docstrings", table.flow())
    assert {row: (one.start.geometry.layers, one.stage_one.steps) for row, one in rows.items()} == {
        "2 layers": (2, 300),
        "4 layers": (4, 171),
        "4 layers, all steps": (4, 300),
    }
