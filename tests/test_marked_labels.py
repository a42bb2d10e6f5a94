"""A classifier that reads the states at two marked spans: its formula, every layout, and from a file to predictions."""

import csv
import json
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.special import softmax
from small import small_flow, small_recipe
from test_adapted import ADAPTED, TRAIN, saved
from tokenizers import ByteLevelBPETokenizer
from tracked import empty_store
from trainings import (
    GEOMETRY,
    LABELS,
    make_model,
    one_thread,  # noqa: F401 - a fixture
    stage_one,
    stage_two,
)
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertModel,
    BertTokenizerFast,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from ways import assert_one_gradient, batch_of

from tlm_ray import storage
from tlm_ray.compute import Compute
from tlm_ray.console import print_once
from tlm_ray.runs import experiment
from tlm_ray.runs.cli.options import Data, OneTask, Place, open_flow
from tlm_ray.runs.cli.recipe_options import Changes, Passages
from tlm_ray.training.encoders.marked import MarkedStates
from tlm_ray.training.encoders.marked_head import MarkedHead, check_marks, ids_of, with_marks
from tlm_ray.training.encoders.weights import TrainedWeights
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.flops import Flops
from tlm_ray.training.objectives import Labels, MarkedLabels
from tlm_ray.training.settings import Job
from tlm_ray.training.stage import run_job
from tlm_ray.training.students.teaching import decoded_texts
from tlm_ray.training.tokens.blocks import Blocks, read_blocks, write_task_blocks
from tlm_ray.training.tokens.preparation import FACTS, TOKENIZER
from tlm_ray.training.tokens.tokenizer import load_tokenizer

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
RIVALS = runpy.run_path(str(EXPERIMENTS / "rivals_pretrained.py"))
SWEEP = runpy.run_path(str(EXPERIMENTS / "sweep.py"))["Sweep"]
MAIN_TABLE = runpy.run_path(str(EXPERIMENTS / "main_table.py"))["MainTable"]
SIGNS = ("<<", ">>", "[[", "]]")
WIDTH, MARKS = 8, ([5, 5], [6, 6], [7], [8, 9])


@dataclass(frozen=True, kw_only=True)
class Known(MarkedLabels):
    """Marks of small numbers, which random rows often have."""

    @property
    def in_stage_one(self):
        return self

    def head(self, weights):
        weights.config.marks = [[token] for token in range(20, 24)]
        return MarkedHead(AutoModelForSequenceClassification.from_config(weights.config))


def states_of(hidden, tokens):
    """The states that a row's logits come from, by a loop over its tokens."""

    def find(mark):
        return next((i for i in range(len(tokens)) if tokens[i : i + len(mark)] == mark), len(tokens))

    def mean(start, end):
        return hidden[start:end].mean(0) if start < min(end, len(tokens)) else torch.zeros(hidden.shape[1])

    one, one_end, two, two_end = map(find, MARKS)
    one_in, two_in = (one + 2, one_end), (two + 1, two_end)
    between = (one_end + 2, two) if one < two else (two_end + 2, one)
    return torch.cat([mean(one, one + 1), mean(two, two + 1), mean(*one_in), mean(*two_in), mean(*between)])


ROWS = [
    [1, 5, 5, 30, 31, 6, 6, 40, 41, 7, 32, 8, 9, 3],
    [1, 7, 33, 8, 9, 5, 5, 34, 6, 6, 3],  # the other order, nothing between
    [1, 5, 30, 5, 5, 31, 6, 32, 6, 6, 40, 8, 9, 3],  # one sign alone is no mark, and the second span has no start
    [1, 50, 51, 3],
]


def test_logits_come_from_marks_insides_and_what_is_between():
    torch.manual_seed(0)
    states = MarkedStates(WIDTH, 3, MARKS)
    length = max(map(len, ROWS)) + 2
    ids = torch.tensor([row + [0] * (length - len(row)) for row in ROWS])
    attention = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in ROWS])
    hidden = torch.randn(len(ROWS), length, WIDTH)
    found = states(hidden, attention, ids)
    inputs = torch.stack([states_of(hidden[number], row) for number, row in enumerate(ROWS)])
    expected = states.out(torch.nn.functional.gelu(states.dense(inputs)))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert (inputs[0] != 0).all() and not inputs[3].any()


@pytest.mark.parametrize("family", ["modernbert", "bert"])
def test_layouts_and_workers_have_one_gradient(family):
    own = stage_one(geometry=replace(GEOMETRY, family=family, init_std=0.3), labels=Known())
    assert_one_gradient(own, "task")


def test_operations_at_the_marks_are_counted():
    own = stage_two(labels=Known())
    model, batch = make_model(own).on("cpu"), batch_of(own, "task")
    assert any((batch.tokens == token).any() for token in range(20, 24))
    flops, plain = Flops(model), Flops(make_model(stage_two()).on("cpu"))
    assert flops.computed(batch) > plain.computed(batch) > 0 and not flops.unknown


def test_signs_that_are_no_marks_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"labels: marks \('<', '>'\): give four different signs"):
        MarkedLabels(marks=("<", ">"))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n[\n]\n<\n")
    tokenizer = BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    config = type("Config", (), {})()
    with_marks(config, tokenizer, ("[[", "]]", "<", "["))
    assert config.marks == [[5, 5], [6, 6], [7], [5]]
    with pytest.raises(ValueError, match="marks '>>': the tokenizer does not know it; mark the spans by other signs"):
        with_marks(config, tokenizer, ("[[", "]]", "<<", ">>"))


INLINE = "The <e1>audits</e1> were about <e2>waste</e2>."
SPACED = "The <e1> audits </e1> were about <e2> waste </e2> ."


def test_rows_whose_marks_a_tokenizer_of_bytes_reads_as_other_tokens_are_refused(tmp_path):
    signs = ("<e1>", "</e1>", "<e2>", "</e2>")
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator([INLINE, SPACED] * 50, vocab_size=300, special_tokens=["<|end|>"], show_progress=False)
    end = {"eos_token": "<|end|>", "pad_token": "<|end|>"}
    folder = str(tmp_path / "blocks")
    PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, **end).save_pretrained(f"{folder}/{TOKENIZER}")
    storage.write_record(f"{folder}/{FACTS}", {"labels": LABELS, "metric": "accuracy"})
    settings = stage_two(labels=MarkedLabels(marks=signs))
    job = Job(folder=str(tmp_path / "stage"), blocks=folder, settings=settings, compute=Compute())
    tokenizer = load_tokenizer(f"{folder}/{TOKENIZER}")
    for spaced in (5, 4):
        texts = [SPACED] * spaced + [INLINE] * (10 - spaced)
        split = pa.table({"text": texts, "text_pair": [""] * 10, "label": [0] * 10})
        rows = write_task_blocks(f"{folder}/train.arrow", split, tokenizer, task_tokens=48)
        if spaced == 5:
            check_marks(rows, tokenizer, signs)
    wrong = "labels: marks <e1> </e1> <e2> </e2>: the tokens of all four are in 4 of 10 training rows; put a space"
    with pytest.raises(ValueError, match=wrong):
        run_job(job, Worker())


def test_texts_without_marks_and_a_start_from_a_marked_classifier_are_refused(data, tmp_path):
    flow, options = small_flow(data, tmp_path), Changes(marks=True)
    with pytest.raises(ValueError, match="--marks: the texts of topics do not mark two spans each; leave it out"):
        options.marked(small_recipe(), "topics", flow, ["topics"])
    other = shutil.copytree(data / "tasks" / "topics", tmp_path / "mail")
    with pytest.raises(ValueError, match="--marks: the texts of topics, mail do not mark two spans each"):
        options.marked(small_recipe(), "topics", flow, ["topics", str(other)])
    make_model(stage_two(labels=Known())).export(Known(), tmp_path, precision="fp32")
    with pytest.raises(ValueError, match="is a classifier of marked spans, which no training goes on with"):
        TrainedWeights(tmp_path, labels=LABELS, seed=0)


ALONE = """
import json, sys
from transformers import AutoModelForSequenceClassification, AutoTokenizer
folder, texts = sys.argv[1], json.load(sys.stdin)
try:
    AutoModelForSequenceClassification.from_pretrained(folder)  # asks on standard output, and gets no answer
except ValueError as error:
    print(error, file=sys.stderr)
model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
found = [model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1).tolist() for text in texts]
assert "tlm_ray" not in sys.modules
print()
print(json.dumps(found))
"""


def write_pairs(data, folder):
    """Write pairs.csv, 60 texts that mark two spans, and a corpus; return them and the options of a small training."""
    texts = [text for part in (data / "corpus").glob("*.parquet") for text in pq.read_table(part)["text"].to_pylist()]
    (folder / "texts").mkdir()
    (folder / "texts" / "all.txt").write_text("\n\n".join(texts))
    words = [text.split() for text in texts[:60]]
    rows = [[f"[[ {w[0]} ]] {w[1]} << {w[2]} >> {w[3]}", "ab"[number % 2]] for number, w in enumerate(words)]
    with (folder / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *rows])
    small = ["--steps", "4", "--steps-two", "2", "--k", "5", "--precision", "fp32"]
    small += ["--tracking-uri", empty_store(folder), "--root", f"{folder}/tlm"]
    places = ["--tasks", f"{folder}/pairs.csv", "--corpus", f"{folder}/texts", "--model", f"{folder}/model"]
    return [text for text, _ in rows], [*places, *small, "--marks"]


def own_tokenizer(root: Path, made: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the blocks that a student's rows were made of."""
    wanted = json.loads((made / "record.json").read_text())["recipe"]["inputs"]["blocks"]
    (folder,) = (path for path in (root / "tlm" / "blocks").glob("*/") if wanted.startswith(path.name))
    return AutoTokenizer.from_pretrained(folder / "tokenizer")


def records(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in folder.glob("*/record.json")]


@pytest.mark.slow
def test_a_student_of_teachers_that_read_marks_reads_them_too(tmp_path, data, called):
    _, options = write_pairs(data, tmp_path)
    called("experiments/train.py", *options, "--seeds", "2", "--student")
    (folder,) = {path.parent for path in (tmp_path / "model").rglob("marked.py")}
    options = ["--model", f"{tmp_path}/model", "--texts", f"{tmp_path}/pairs.csv", "--out", f"{tmp_path}/out"]
    assert "60 rows in" in called("experiments/predict.py", *options, "--column", "text")
    taught = [path for path in (tmp_path / "tlm" / "stage_two").glob("*/record.json") if "taught" in path.read_text()]
    assert len(taught) == 1 and len(json.loads((folder / "config.json").read_text())["plain"]["marks"]) == 4


@pytest.mark.slow
def test_a_pretrained_encoder_is_adapted_and_then_reads_marks(tmp_path, data, called):
    texts, options = write_pairs(data, tmp_path)
    start = saved(tmp_path / "encoder", BertModel, texts, positions=128)
    called("experiments/train.py", *options, "--seeds", "1", "--start", start, "--before", "adapted")
    options = ["--model", f"{tmp_path}/model", "--texts", f"{tmp_path}/pairs.csv", "--out", f"{tmp_path}/out"]
    assert "60 rows in" in called("experiments/predict.py", *options, "--column", "text")
    (folder,) = {path.parent for path in (tmp_path / "model").rglob("marked.py")}
    config, tokenizer = json.loads((folder / "config.json").read_text()), AutoTokenizer.from_pretrained(start)
    ids = [tokenizer.convert_tokens_to_ids(list(sign)) for sign in ("[[", "]]", "<<", ">>")]
    assert sorted(config["plain"]["marks"]) == sorted(ids) and config["plain"]["model_type"] == "bert"
    (one,) = (tmp_path / "tlm" / "stage_one").glob("*/record.json")
    assert "MarkedLabels" in one.read_text(), "its stage one reads them too"


def test_a_teacher_of_another_tokenizer_reads_marks_in_one_piece(tmp_path, data):
    texts, _ = write_pairs(data, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(saved(tmp_path / "encoder", BertModel, texts, positions=128))
    ids = [tokenizer(text)["input_ids"] for text in texts[:2]]
    part = Blocks(np.concatenate(ids).astype(np.int32), np.cumsum([0, *map(len, ids)]))
    read, _ = decoded_texts(part, tokenizer, SIGNS)
    (apart, _), lower = decoded_texts(part, tokenizer, ()), [text.lower() for text in texts[:2]]
    assert read == lower and all(" ".join(sign) in text for sign in SIGNS for text in apart)


@pytest.mark.slow
def test_a_small_student_learns_from_a_pretrained_encoder_that_was_adapted(tmp_path, data, called):
    texts, options = write_pairs(data, tmp_path)
    start = saved(tmp_path / "encoder", BertModel, texts, positions=128)
    at = options.index("--model")
    more = ["--out", f"{tmp_path}/out", "--start", start, "--seeds", "2"]
    more += ["--rows", "BM25 text", "--student-of", "BM25 text"]
    said = called("experiments/adapted.py", *options[:at], *options[at + 2 :], *more)
    assert "BM25 text, student of 2" in said
    cells = json.loads((tmp_path / "out" / "adapted.json").read_text())["cells"]
    *_, student, mean, beside, mean_beside = [cell for cell in cells if "student of 2" in cell["row"]]
    own = "BM25 text, student of 2"
    assert [cell["row"] for cell in (student, beside)] == [own, f"{own} with linear model"]
    assert [cell["row"] for cell in (mean, mean_beside)] == [
        f"{own}, mean of 2 seeds{end}" for end in ("", " with linear model")
    ]
    assert all(cell["pretrained"] for cell in (student, mean, beside, mean_beside)), "by their teachers"
    soft, trained = (records(tmp_path / "tlm" / name) for name in ("soft_labels", "stage_two"))
    assert [one["facts"]["teachers"] for one in soft] == [2], "one stage one replaces words, for both students"
    assert [one["recipe"]["parameters"]["replacements"] for one in records(tmp_path / "tlm" / "student_rows")] == [3]
    for folder in (tmp_path / "tlm" / "student_rows").glob("*/"):
        rows, signs = read_blocks(f"{folder}/train.arrow"), ids_of(own_tokenizer(tmp_path, folder), "[[ ]] << >>")
        count = len(rows) // 7  # own ones, three times as many spliced, and as many with replaced words
        own, made = rows.tokens[: rows.offsets[count]], rows.tokens[rows.offsets[4 * count] :]
        is_sign = np.isin(own, signs)
        assert is_sign.sum() == 8 * count and (made != np.tile(own, 3)).any()
        np.testing.assert_array_equal(np.isin(made, signs), np.tile(is_sign, 3), err_msg="marks stay where they are")
    own = [one for one in trained if "taught" not in one["recipe"]["inputs"]]
    taught = [one for one in trained if one not in own]
    assert [one["facts"]["steps"] for one in taught] == [4 * one["facts"]["steps"] for one in own]
    assert {one["facts"]["parameters"] for one in taught}.isdisjoint(one["facts"]["parameters"] for one in own)


def test_a_pretrained_encoder_that_reads_marks_is_fine_tuned_alone_unless_asked(tmp_path, data, capsys):
    print_once.cache_clear()
    texts, _ = write_pairs(data, tmp_path)
    start, task = saved(tmp_path / "encoder", BertModel, texts, positions=128), f"{tmp_path}/pairs.csv"
    own = OneTask(tasks=[task], corpus=[f"{tmp_path}/texts"])
    options = TRAIN["Train"](data=own, start=start, changes=Changes(marks=True), place=Place(root=f"{tmp_path}/tlm"))
    flow = open_flow(options.data, options.place, options.cluster)
    (alone, *_), (adapted, *_) = (TRAIN["trainings"](replace(options, before=each), flow) for each in (None, "adapted"))
    assert alone.recipe.stage_one is None and adapted.recipe.stage_one is not None
    assert alone.recipe.labels == adapted.recipe.labels == MarkedLabels(marks=SIGNS)
    assert "--before plain: no gain of adapting an encoder that reads --marks" in " ".join(
        capsys.readouterr().out.split()
    )
    unread = "--k: has no effect with --start and --marks; leave it out, or add --before adapted"
    with pytest.raises(ValueError, match=unread):
        TRAIN["trainings"](replace(options, passages=Passages(k=5)), flow)


def test_a_model_that_mlflow_cannot_log_is_not_registered_and_stays_under_the_root(tmp_path, data, capsys):
    write_pairs(data, tmp_path)
    own, place = OneTask(tasks=[f"{tmp_path}/pairs.csv"], corpus=[f"{tmp_path}/texts"]), Place(root=f"{tmp_path}/tlm")
    options = TRAIN["Train"](data=own, changes=Changes(scale="mini", marks=True), place=place)
    flow = open_flow(own, place, options.cluster)
    with pytest.raises(ValueError, match="--register ours: MLflow cannot log a model that reads --marks or writes"):
        TRAIN["trainings"](replace(options, register="ours"), flow)
    outcome = SimpleNamespace(model=lambda training: "/root/model")  # without log_model
    experiment._log_model(outcome, TRAIN["trainings"](options, flow)[0])
    assert "it stays in /root/model" in " ".join(capsys.readouterr().out.split())


def test_each_row_of_a_pretrained_encoder_reads_the_marks(tmp_path, data):
    texts, _ = write_pairs(data, tmp_path)
    start, task = saved(tmp_path / "encoder", BertModel, texts, positions=128), f"{tmp_path}/pairs.csv"
    place, changes = Place(root=f"{tmp_path}/tlm"), Changes(scale="mini", marks=True)
    table = ADAPTED(start=start, data=Data(tasks=[task], corpus=[f"{tmp_path}/texts"]), changes=changes, place=place)
    rows, expected = table.recipes(task, table.flow()), MarkedLabels(marks=SIGNS)
    assert list(rows) == ["fine-tuned", "fine-tuned, longer", "TAPT", "random text", "BM25 text"]
    assert {recipe.labels for recipe in rows.values()} == {expected}
    rival = RIVALS["Rivals"](encoder=start, data=RIVALS["Tasks"](tasks=[task]), place=place, marks=True)
    assert rival.recipe(task, table.flow(), passes=1, rate=1e-4).labels == expected


def test_each_trial_of_a_sweep_reads_the_marks(tmp_path, data):
    write_pairs(data, tmp_path)
    own = Data(tasks=[f"{tmp_path}/pairs.csv"], corpus=[f"{tmp_path}/texts"])
    sweep = SWEEP(data=own, changes=Changes(scale="mini", marks=True), place=Place(root=f"{tmp_path}/tlm"))
    trials = sweep.trials(open_flow(sweep.data, sweep.place, sweep.cluster))
    assert [base.labels for base in trials.bases.values()] == [MarkedLabels(smoothing=0.1, marks=SIGNS)]


def test_a_table_of_marked_and_other_tasks_reads_marks_where_there_are_some(tmp_path, data, capsys):
    write_pairs(data, tmp_path)
    other, marked = str(data / "tasks" / "topics"), f"{tmp_path}/pairs.csv"
    own = Data(tasks=[other, marked], corpus=[f"{tmp_path}/texts"])
    changes, place = Changes(scale="mini", marks=True), Place(root=f"{tmp_path}/tlm")
    table = MAIN_TABLE(data=own, changes=changes, place=place)
    labels = {task: {each.labels for each in table.recipes(task, table.flow()).values()} for task in own.tasks}
    assert labels == {other: {Labels(smoothing=0.1)}, marked: {MarkedLabels(smoothing=0.1, marks=SIGNS)}}
    assert "--marks: the texts of topics do not mark two spans each, so its rows read none" in capsys.readouterr().out


def test_a_stage_one_of_several_tasks_is_the_same_with_marks():
    plain = small_recipe(tasks=("one", "other"))
    marked = replace(plain, labels=MarkedLabels())
    assert marked.settings_one(0) == plain.settings_one(0)
    assert marked.settings_two(0, marked.start) != plain.settings_two(0, plain.start)


@pytest.mark.slow
def test_from_a_file_with_marks_to_predictions_and_to_transformers_alone(tmp_path, data, called, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    texts, options = write_pairs(data, tmp_path)
    called("experiments/train.py", *options, "--seeds", "1")
    options = ["--model", f"{tmp_path}/model", "--texts", f"{tmp_path}/pairs.csv", "--out", f"{tmp_path}/out"]
    assert "60 rows in" in called("experiments/predict.py", *options, "--column", "text")
    (part,) = (tmp_path / "out").glob("*.parquet")
    found = np.array(pq.read_table(part)["probabilities"].to_pylist())
    (folder,) = {path.parent for path in (tmp_path / "model").rglob("marked.py")}
    command = [sys.executable, "-c", ALONE, str(folder)]
    given = json.dumps(texts)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    np.testing.assert_allclose(found, json.loads(done.stdout.splitlines()[-1]), rtol=1e-4, atol=1e-5)
    assert "trust_remote_code=True" in done.stderr, "without its code the model is not opened"
    assert "trust_remote_code=True" in (folder / "README.md").read_text(), "its card says so"
    assert str(tmp_path) not in (folder / "config.json").read_text()
    options = ["--model", str(folder), "--texts", f"{tmp_path}/pairs.csv", "--out", f"{tmp_path}/onnx"]
    called("experiments/export.py", *options)
    session = onnxruntime.InferenceSession(f"{tmp_path}/onnx/model.onnx")
    encoded = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="np")
    (logits,) = session.run(["logits"], {wanted.name: encoded[wanted.name] for wanted in session.get_inputs()})
    np.testing.assert_allclose(softmax(logits, axis=1), found, rtol=1e-3, atol=1e-5)
