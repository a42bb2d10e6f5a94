"""A pretrained encoder is adapted by text before its fine-tuning: its steps, its head, and rows of equal operations."""

import logging
import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from small import small_flow, small_recipe
from small_data import TOPICS, sentences
from test_plan import record
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM, BertModel

from tlm_ray import make, recipe_for
from tlm_ray.compute import Compute
from tlm_ray.console import print_once
from tlm_ray.retrieval.methods import Random
from tlm_ray.runs.cli.options import Data, OneTask, Place, open_flow
from tlm_ray.runs.cli.recipe_options import Budget, Changes, Mixture, Passages, TrainingOptions
from tlm_ray.runs.planning.estimates import CPU_FLOPS_PER_S, training_seconds
from tlm_ray.runs.planning.minutes import tokens_in
from tlm_ray.runs.recipes.adaptation import adapted
from tlm_ray.runs.recipes.budget import recipe_tokens
from tlm_ray.runs.recipes.equal_cost import of_equal_cost
from tlm_ray.runs.recipes.paper import baseline
from tlm_ray.runs.stages.records import Records
from tlm_ray.training.encoders.sizes import counted_parameters
from tlm_ray.training.encoders.starts import Architecture, Pretrained
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Labels, Mlm
from tlm_ray.training.tokens.blocks import read_blocks
from tlm_ray.training.tokens.counts import Counts
from tlm_ray.training.tokens.preparation import read_counts
from tlm_ray.training.tokens.tokenizer import train_wordpiece

PLM = "google-bert/bert-base-uncased"
ADAPTED = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "adapted.py"))["Adapted"]
TRAIN = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "train.py"))
ROWS_OF = {"general": "blocks", "train": "rows"}


def saved(folder: Path, kind, words: list[str], *, positions: int = 64) -> str:
    """Save a small BERT of random weights, with or without a head, and a tokenizer of some words."""
    tokenizer = train_wordpiece(words, vocabulary=150)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=positions, initializer_range=0.1, **size)
    model = kind(config)
    if kind is BertForMaskedLM:
        torch.nn.init.uniform_(model.cls.predictions.bias)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def words(data) -> list[str]:
    return pq.read_table(data / "tasks" / "topics" / "train.parquet")["text"].to_pylist()


@pytest.fixture(scope="module")
def headless(tmp_path_factory, words) -> str:
    return saved(tmp_path_factory.mktemp("headless"), BertModel, words)


@pytest.mark.parametrize(("corpus", "start", "count"), [(None, False, 1), (None, True, 0), ("texts", False, 0)])
def test_only_who_trains_on_general_text_without_a_corpus_is_told_so(
    data, headless, tmp_path, capsys, corpus, start, count
):
    print_once.cache_clear()
    own = OneTask(tasks=[str(data / "tasks" / "topics")], corpus=[str(data / "corpus")] if corpus else [])
    place, changes = Place(root=f"{tmp_path}/tlm"), Changes(scale="tiny")
    options = TRAIN["Train"](data=own, start=headless if start else "", place=place, changes=changes)
    flow = open_flow(own, place, options.cluster)
    for training in TRAIN["trainings"](options, flow):
        training.stages(flow)
    assert capsys.readouterr().out.count("corpus: the docstrings of installed packages") == count


def test_it_takes_a_third_of_the_steps_at_a_rate_that_keeps_what_the_encoder_knows():
    recipe = recipe_for("x", "mini", train_rows=3_219, row_words=30)
    made = adapted(recipe, PLM, train_rows=3_219)
    one = made.stage_one
    assert (one.steps, one.warmup_steps, one.learning_rate, one.evaluate_every) == (500, 50, 2e-4, 166)
    assert (made.method, made.k, made.rho1, made.rho2) == (recipe.method, recipe.k, recipe.rho1, recipe.rho2)
    plain = baseline(recipe, PLM, train_rows=3_219)
    assert (made.stage_two, made.labels, made.tokenizer) == (plain.stage_two, plain.labels, plain.tokenizer)
    assert adapted(recipe, PLM, train_rows=3_219, steps=90, rate=1e-4).stage_one.learning_rate == 1e-4
    with pytest.raises(ValueError, match="kind 'plain': adapts nothing; allowed are mlm, tapt, dapt and tlm"):
        adapted(recipe, PLM, "plain", train_rows=9)


def test_the_command_line_takes_the_steps_it_is_told(data, tmp_path):
    flow, asked = small_flow(data, tmp_path), (PLM, "adapted", "topics")
    options = {"data": Data(tasks=["topics"], task_root=str(data / "tasks"))}
    made = TrainingOptions(**options).fine_tuned(*asked, flow, Mixture(rho1=3))
    assert (made.stage_one.steps, made.stage_one.learning_rate, made.rho1) == (500, 2e-4, 3)
    told = TrainingOptions(**options, changes=Changes(steps=9)).fine_tuned(*asked, flow, Mixture())
    assert told.stage_one.steps == 9


def test_minutes_are_those_of_the_encoder_that_is_adapted(data, tmp_path, words):
    flow, folder = small_flow(data, tmp_path), saved(tmp_path, BertModel, words)
    options = TrainingOptions(data=Data(tasks=["topics"], task_root=str(data / "tasks")))
    asked = (folder, "adapted", "topics", flow, Mixture())
    whole = options.whole_fine_tuned(*asked)
    parameters = BertModel.from_pretrained(folder).num_parameters()
    assert counted_parameters(whole.start, vocabulary=9) == parameters
    minutes = 6 * recipe_tokens(whole) * parameters / CPU_FLOPS_PER_S / 60  # the speed before the first training
    assert replace(options, budget=Budget(minutes=1.01 * minutes)).fine_tuned(*asked) == whole
    half = replace(options, budget=Budget(minutes=0.5 * minutes))
    assert 0.45 <= recipe_tokens(half.fine_tuned(*asked)) / recipe_tokens(whole) <= 0.5
    assert not half.budget.is_enough(whole, flow)


def test_a_training_adapts_first_where_the_minutes_are_enough(data, tmp_path, words, capsys):
    print_once.cache_clear()
    flow, folder = small_flow(data, tmp_path), saved(tmp_path, BertModel, words)
    own = {"tasks": ["topics"], "task_root": str(data / "tasks"), "corpus": str(data / "corpus")}
    options = TRAIN["Train"](data=OneTask(**own), start=folder, model=str(tmp_path / "model"), seeds=1)
    whole = options.whole_fine_tuned(folder, "adapted", "topics", flow, Mixture())
    minutes = recipe_tokens(whole) * 6 * counted_parameters(whole.start, vocabulary=0) / CPU_FLOPS_PER_S / 60
    kinds = []
    for share in (1.01, 0.5):
        first, *_ = TRAIN["trainings"](replace(options, budget=Budget(minutes=share * minutes)), flow)
        kinds.append("plain" if first.recipe.stage_one is None else "adapted")
    assert kinds == ["adapted", "plain"]
    assert "minutes are too few to adapt the encoder first" in " ".join(capsys.readouterr().out.split())
    few = replace(options, budget=Budget(minutes=0.5 * minutes), changes=Changes(steps=18))
    (first, *_), unread = TRAIN["trainings"](few, flow), "^--steps: has no effect with --start and "
    assert first.recipe.stage_one is None, "the option is for the adaptation that minutes may allow elsewhere"
    with pytest.raises(ValueError, match=unread + "--before plain; leave it out"):
        TRAIN["trainings"](replace(few, before="plain"), flow)
    without = replace(few, budget=Budget(), data=OneTask(tasks=["topics"], task_root=str(data / "tasks")))
    with pytest.raises(ValueError, match=unread + "no --corpus; leave it out"):
        TRAIN["trainings"](without, flow)


def test_a_recorded_training_of_an_encoder_sets_its_speed(data, tmp_path, words):
    flow, folder, other = small_flow(data, tmp_path), saved(tmp_path, BertModel, words), tmp_path / "other"
    recipe = baseline(small_recipe(), folder, train_rows=60)
    parameters = BertModel.from_pretrained(folder).num_parameters()
    for own, size, rate in ((recipe, parameters, 1e9), (small_recipe(), None, 5e9)):
        stage = flow.stages(own, "topics", 0).last
        flops = stage.cost["flops"] if size is None else 6 * stage.cost["tokens"] * size
        record(stage, str(other), flops / rate, facts={} if size is None else {"parameters": size})
    seconds = training_seconds(recipe, Records(str(other)), Compute())
    assert seconds == pytest.approx(6 * recipe_tokens(recipe) * parameters / 1e9)


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_an_architecture_takes_the_vocabulary_of_the_recipe(tmp_path, kind):
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    AutoConfig.for_model(kind, **size).save_pretrained(tmp_path)  # the padding of ModernBERT is token 50,283
    config = AutoConfig.for_model(kind, vocab_size=777, pad_token_id=0, **size)
    expected = AutoModel.from_config(config).num_parameters()
    assert counted_parameters(Architecture(str(tmp_path)), vocabulary=777) == expected


def test_a_budget_holds_for_each_of_two_trainings_before_the_fine_tuning(data, tmp_path):
    flow, options = small_flow(data, tmp_path), TrainingOptions(budget=Budget(tokens=3_000_000))
    once, twice = (options.fine_tuned(PLM, kind, "topics", flow, Mixture()) for kind in ("dapt", "dapt+tapt"))
    assert twice.after == once and recipe_tokens(once) <= 3_000_000 >= recipe_tokens(twice)
    assert once.stage_one.steps < options.whole_fine_tuned(PLM, "dapt", "topics", flow, Mixture()).stage_one.steps


def test_minutes_follow_the_encoder_that_lies_in_the_folder(data, tmp_path, words):
    flow, folder = small_flow(data, tmp_path), saved(tmp_path, BertModel, words)
    recipe = baseline(small_recipe(), folder, train_rows=60)
    first = tokens_in(1.0, recipe, flow.execution)
    config = AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = 9
    BertModel(config).save_pretrained(folder)
    assert tokens_in(1.0, recipe, flow.execution) < first


@pytest.mark.parametrize("kind", [BertModel, BertForMaskedLM])
def test_a_head_that_is_lost_begins_with_frequencies_and_one_that_is_there_is_kept(kind, tmp_path, words):
    folder = saved(tmp_path, kind, words)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = JointModel.of(Pretrained(folder), (Labels(), Mlm()), tokenizer=tokenizer, labels=("a", "b"), seed=0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    bias = np.linspace(-9, -1, len(tokenizer)).astype(np.float32)
    model.begin_with(None, bias)
    head = model.heads["mlm"].last
    if kind is BertModel:
        assert torch.equal(head.bias.detach(), torch.from_numpy(bias))
    changed = [name for name, p in model.named_parameters() if not torch.equal(p.detach(), before[name])]
    assert changed == (["heads.mlm.model.cls.predictions.bias"] if kind is BertModel else [])
    assert head.weight is model.encoder.get_input_embeddings().weight, "the table of tokens is the output matrix"


def test_rows_beyond_the_tokenizer_begin_as_unlikely_as_the_rarest_token(tmp_path, words):
    folder = saved(tmp_path, BertModel, words)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    longer = BertModel.from_pretrained(folder)
    longer.resize_token_embeddings(len(tokenizer) + 8, mean_resizing=False)
    longer.save_pretrained(folder)
    model = JointModel.of(Pretrained(folder), (Labels(), Mlm()), tokenizer=tokenizer, labels=("a", "b"), seed=0)
    width, table = model.config.hidden_size, model.encoder.get_input_embeddings().weight
    embeddings = np.random.default_rng(0).random((len(tokenizer), width)).astype(np.float32)
    embeddings[5] = 0
    before, bias = table.detach().clone(), np.linspace(-9, -1, len(tokenizer)).astype(np.float32)
    model.begin_with(embeddings, bias)
    np.testing.assert_array_equal(model.heads["mlm"].last.bias.detach().numpy(), [*bias, *[-9.0] * 8])
    expected = torch.cat([torch.from_numpy(embeddings), before[len(tokenizer) :]])
    expected[5] = before[5]
    assert torch.equal(table.detach(), expected)


@pytest.fixture
def many(data, tmp_path) -> Path:
    """The small data with 700 training rows of one to three sentences, which can be sorted by length."""
    draw = np.random.default_rng(1)
    shutil.copytree(data, tmp_path / "many")
    labels = [list(TOPICS)[i % 3] for i in range(700)]
    texts = [sentences(draw, label, int(draw.integers(1, 4))) for label in labels]
    pq.write_table(pa.table({"text": texts, "label": labels}), tmp_path / "many" / "tasks" / "topics" / "train.parquet")
    return tmp_path / "many"


@pytest.mark.usefixtures("alone")
def test_rows_of_equal_operations_and_a_bias_of_shares(many, tmp_path, headless):
    flow, recipe = small_flow(many, tmp_path), small_recipe(k=10)
    ours, tapt = (adapted(recipe, headless, kind, train_rows=200, steps=120) for kind in ("tlm", "tapt"))
    root, laid = flow.execution.root, flow.stages(ours, "topics", 0)
    make([laid.blocks], root)
    facts = laid.blocks.record(root)["facts"]
    means = tuple(round(facts[f"{kind}_tokens"] / facts[f"{kind}_{n}"]) for kind, n in ROWS_OF.items())
    plain = baseline(recipe, headless, train_rows=200)
    ours, tapt, plain = (replace(one, stage_two=one.stage_two.cut_to(0.07)) for one in (ours, tapt, plain))
    counted, rows = [], [ours, *(of_equal_cost(one, ours, row_tokens=means) for one in (tapt, plain))]
    for row in rows:
        stages = flow.stages(row, "topics", 0)
        make([stages.metrics], root)
        counted.append(sum(stage.record(root)["facts"]["flops_counted"] for stage in stages.trained))
    assert counted[1:] == pytest.approx([counted[0]] * 2, rel=0.1), "planned from mean lengths"
    assert rows[2].stage_one is None and rows[2].stage_two.steps > 1.2 * plain.stage_two.steps
    embeddings, bias = read_counts(laid.counts.folder(root))
    task, general = (read_blocks(f"{laid.blocks.folder(root)}/{name}.arrow") for name in ("train", "general"))
    tokens = np.concatenate([task.tokens, general.cut(10).tokens[: general.cut(10).offsets[-1]]])
    expected = np.log((np.bincount(tokens, minlength=len(bias)) + 1) / (len(tokens) + len(bias)))
    np.testing.assert_allclose(bias, expected, rtol=1e-5)
    assert embeddings is None and ours.counts == Counts(embeddings=False)


def test_planning_says_nothing_of_new_heads(headless):
    said = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())
    logger = transformers.utils.logging.get_logger("transformers")
    logger.addHandler(listener)
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_warning()
    try:
        recipe = small_recipe(k=10)
        ours, tapt = (adapted(recipe, headless, kind, train_rows=200, steps=120) for kind in ("tlm", "tapt"))
        of_equal_cost(tapt, ours, row_tokens=(24, 20))
    finally:
        transformers.utils.logging.set_verbosity(before)
        logger.removeHandler(listener)
    assert not said


def test_the_tables_rows_differ_in_what_they_should(data, tmp_path, headless):
    table = ADAPTED(
        start=headless,
        data=Data(tasks=["topics"], task_root=str(data / "tasks")),
        changes=Changes(scale="tiny"),
        passages=Passages(k=5),
        place=Place(root=str(tmp_path)),
    )
    rows = table.recipes("topics", small_flow(data, tmp_path))
    assert list(rows) == ["fine-tuned", "fine-tuned, longer", "TAPT", "random text", "BM25 text"]
    ours = rows["BM25 text"]
    assert rows["random text"] == replace(ours, method=Random()) and ours.stage_one.steps == 100
    assert rows["TAPT"].weighting == "mlm" and rows["TAPT"].stage_one.steps > 100
    assert {row.start for row in rows.values()} == {Pretrained(headless)}
    plain, longer = rows["fine-tuned"], rows["fine-tuned, longer"]
    assert replace(longer, stage_two=plain.stage_two) == plain and longer.stage_two.steps > plain.stage_two.steps
    texts = pq.read_table(data / "tasks" / "topics" / "train.parquet")["text"].to_pylist()
    words = sum(len(text.replace(".", " .").split()) for text in texts) / len(texts)
    assert longer == of_equal_cost(plain, ours, row_tokens=(84, round(2 + 1.15 * words))), "of the task's own lengths"
    assert longer != of_equal_cost(plain, ours, row_tokens=(84, 60))
    assert table.expected(["BM25 text", "TAPT"]) == [("BM25 text", "TAPT")] and table.expected(["TAPT"]) == []
