"""Scores against their definitions, recipes against the paper's table B.1 and the token counts that it implies."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray.corpus.labelled.hub import ALIASES
from tlm_ray.evaluation.scores import METRICS, score
from tlm_ray.runs.recipes.budget import recipe_tokens
from tlm_ray.runs.recipes.cpu import OWN_RECIPES, TINY_RECIPE
from tlm_ray.runs.recipes.gururangan import with_gururangans_settings
from tlm_ray.runs.recipes.paper import baseline, recipe_for
from tlm_ray.training.cost import stage_one_cost
from tlm_ray.training.encoders.starts import Architecture, Pretrained
from tlm_ray.training.objectives import Generator, Mlm, Rtd, Sop
from tlm_ray.training.tokens.masking import Masking

TASKS = ("ag", "hyp", "amazon", "imdb", "citation_intent", "sciie", "chemprot", "rct-20k")  # table B.1's columns
TABLE_B1 = {
    ("small", "k"): (50, 5000, 50, 500, 5000, 5000, 5000, 50),
    ("small", "rho1"): (1, 99, 1, 19, 999, 999, 999, 3),
    ("small", "rho2"): (100, 20, 100, 100, 100, 20, 20, 20),
    ("small", "steps"): (1e5, 5e4, 1.5e5, 1.5e5, 1.5e5, 1.5e5, 1.5e5, 1e5),
    ("medium", "k"): (50, 5000, 50, 500, 5000, 5000, 5000, 50),
    ("medium", "rho1"): (3, 99, 1, 99, 999, 999, 999, 3),
    ("medium", "rho2"): (100, 100, 1000, 100, 20, 20, 100, 100),
    ("medium", "steps"): (3e5, 1e5, 3e5, 3e5, 3e5, 3e5, 3e5, 3e5),
    ("large", "k"): (100, 10000, 100, 1000, 10000, 10000, 10000, 100),
    ("large", "rho1"): (3, 499, 7, 99, 1999, 1999, 1999, 7),
    ("large", "rho2"): (100, 20, 100, 1000, 20, 20, 20, 100),
    ("large", "steps"): (5e5, 3e5, 5e5, 5e5, 5e5, 3e5, 5e5, 5e5),
}
CLASSES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


def f1(gold, predicted, classes):
    """F1 from its definition, of one or several classes counted together."""
    hits = sum(g == p and g in classes for g, p in zip(gold, predicted, strict=True))
    named = sum(g in classes for g in gold) + sum(p in classes for p in predicted)
    return 2 * hits / named if named else 0.0


def tokens(recipe):
    """Tokens of stage one by table B.1: rho1 general batches, then a task batch."""
    length = (recipe.rho1 * recipe.block_tokens + recipe.task_tokens) / (recipe.rho1 + 1)
    return recipe.stage_one.steps * recipe.stage_one.batch_rows * length


@pytest.mark.parametrize("scale", ["small", "medium", "large"])
@pytest.mark.parametrize("task", TASKS)
def test_the_cost_of_stage_one_counts_task_rows_at_their_own_length(task, scale):
    recipe = recipe_for(task, scale)
    lengths = {"block_tokens": recipe.block_tokens, "task_tokens": recipe.task_tokens}
    cost = stage_one_cost(recipe.settings_one(0), **lengths, vocabulary=recipe.vocabulary)
    assert cost["tokens"] == pytest.approx(tokens(recipe), rel=1e-3)  # of a cycle that is cut off
    assert cost["flops"] == 6 * cost["tokens"] * recipe.start.parameters(vocabulary=recipe.vocabulary)


def test_the_cost_of_imdb_at_small_is_the_papers_with_and_without_general_text():
    recipe = recipe_for("imdb", "small")
    assert (
        recipe_tokens(replace(recipe, stage_two=replace(recipe.stage_two, steps=3_000)))
        == 5_701_632_000  # 5.652E9 of them of stage one
    )
    alone = replace(recipe, k=0, rho1=0)
    lengths = {"block_tokens": recipe.block_tokens, "task_tokens": recipe.task_tokens}
    cost = stage_one_cost(alone.settings_one(0), **lengths, vocabulary=recipe.vocabulary)
    assert cost["tokens"] == 150_000 * 256 * 512, "every row is a task's, of 512 tokens"


@settings(max_examples=200, deadline=None)
@given(CLASSES)
def test_f1_and_accuracy_are_their_definitions(pairs):
    gold, predicted = zip(*pairs, strict=True)
    seen = set(gold) | set(predicted)
    macro = sum(f1(gold, predicted, {c}) for c in seen) / len(seen)
    assert score("macro_f1", gold, predicted) == pytest.approx(100 * macro)
    assert score("micro_f1", gold, predicted) == pytest.approx(100 * f1(gold, predicted, seen))
    assert score("accuracy", gold, predicted) == pytest.approx(100 * sum(g == p for g, p in pairs) / len(pairs))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40))
def test_scores_of_two_classes_are_their_definitions(pairs):
    gold, predicted = zip(*pairs, strict=True)
    hits = sum(g == p for g, p in pairs) / len(pairs)
    assert score("accuracy_f1", gold, predicted) == pytest.approx(100 * (hits + f1(gold, predicted, {1})) / 2)
    tp, fn, fp, tn = (pairs.count(pair) for pair in ((1, 1), (1, 0), (0, 1), (0, 0)))
    spread = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    expected = 100 * (tp * tn - fp * fn) / spread if spread else 0.0
    assert score("matthews", gold, predicted) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(CLASSES, st.permutations(range(5)))
def test_scores_do_not_depend_on_the_order_of_rows_or_the_names_of_classes(pairs, renamed):
    gold, predicted = zip(*pairs, strict=True)
    other_gold, other = zip(*[(renamed[g], renamed[p]) for g, p in reversed(pairs)], strict=True)
    for metric in sorted(name for name, m in METRICS.items() if name != "accuracy_f1" and not m.is_regression):
        assert score(metric, gold, predicted) == pytest.approx(score(metric, other_gold, other), abs=1e-9)


@pytest.mark.parametrize(("scale", "name"), TABLE_B1)
def test_recipes_are_those_of_table_b1(scale, name):
    recipes = [recipe_for(task, scale) for task in TASKS]
    values = [recipe.stage_one.steps if name == "steps" else getattr(recipe, name) for recipe in recipes]
    assert tuple(values) == TABLE_B1[scale, name]
    assert {recipe.scale for recipe in recipes} == {scale}


def test_batches_are_those_of_table_b1():
    rows = {scale: [recipe_for(t, scale).stage_one.batch_rows for t in TASKS] for scale in ("small", "medium", "large")}
    assert rows["small"] == rows["medium"] == [256] * 8
    assert rows["large"] == [256, 512, 512, 512, 512, 512, 256, 256]


@pytest.mark.parametrize(("scale", "mean"), [("small", 2.74e18), ("medium", 8.30e18), ("large", 7.59e19)])
def test_tokens_make_the_flops_of_table_2(scale, mean):
    parameters = 355e6 if scale == "large" else 109e6
    flops = [6 * tokens(recipe_for(task, scale)) * parameters for task in TASKS]
    assert sum(flops) / len(flops) == pytest.approx(mean, rel=2e-3)


def test_lengths_are_128_but_for_imdb():
    for task in TASKS:
        for scale in ("small", "medium", "large"):
            recipe = recipe_for(task, scale)
            long = task == "imdb"
            assert recipe.task_tokens == (512 if long else 128)
            assert recipe.block_tokens == recipe.passage_tokens == (512 if long and scale != "small" else 128)


def test_stages_are_those_of_the_released_scripts():
    recipe = recipe_for("sciie", "small")
    one, two = recipe.stage_one, recipe.stage_two
    assert (one.learning_rate, one.warmup_steps, one.weight_decay) == (1e-4, 10_000, 0.01)
    assert (two.learning_rate, two.warmup_steps, two.weight_decay, two.batch_rows) == (2e-5, 3_000, 0.0, 32)
    geometry = recipe.start.geometry
    assert (geometry.layers, geometry.width, geometry.heads) == (12, 768, 12)
    assert recipe_for("sciie", "large").start.geometry.layers == 24


@pytest.mark.parametrize("alias", sorted(ALIASES))
@pytest.mark.parametrize("scale", ["small", "large"])
def test_other_names_of_a_task_have_its_recipe(alias, scale):
    assert recipe_for(alias, scale) == recipe_for(alias.upper(), scale) == recipe_for(ALIASES[alias], scale)


@pytest.mark.parametrize(
    ("rows", "k"), [(100, 5000), (4_999, 5000), (5_000, 500), (100_000, 500), (100_001, 50), (10**7, 50)]
)
def test_a_new_task_has_the_k_of_the_papers_rule(rows, k):
    assert recipe_for("mine", "small", train_rows=rows).k == recipe_for("mine", "medium", train_rows=rows).k == k
    assert recipe_for("mine", "large", train_rows=rows).k == 2 * k
    assert recipe_for("ag", "small", train_rows=rows).k == 50  # the paper's own task keeps its own


@pytest.mark.parametrize(("rows", "steps"), [(0, 0), (640, 200), (1_688, 527), (4_169, 1_000), (10**6, 1_000)])
@pytest.mark.parametrize("scale", OWN_RECIPES)
def test_stage_two_of_our_own_passes_ten_times_over_the_rows_within_bounds(rows, steps, scale):
    two = recipe_for("mine", scale, train_rows=rows).stage_two
    assert two.batch_rows == (16 if scale == "midi" else 32)
    steps = steps or (100 if scale == "tiny" else 200)
    steps = {527: 1_055}.get(steps, 2 * steps) if scale == "midi" else steps
    assert (two.steps, two.warmup_steps, two.evaluate_every) == (steps, steps // 10, steps // 4)


@pytest.mark.parametrize(
    ("words", "tokens", "steps", "steps_two"), [(50, 128, 1_500, 1_000), (97, 256, 1_000, 500), (755, 512, 600, 500)]
)
def test_long_texts_have_long_rows_and_fewer_steps(words, tokens, steps, steps_two):
    recipe = recipe_for("mine", "mini", train_rows=4_000, row_words=words)
    assert (recipe.task_tokens, recipe.start.positions) == (tokens, tokens)
    assert (recipe.stage_one.steps, recipe.stage_one.warmup_steps, recipe.stage_two.steps) == (
        steps,
        steps // 10,
        steps_two,
    )
    assert recipe.rho1 == (1 if words == 755 else 7), "three million words of its own"


@pytest.mark.parametrize("scale", OWN_RECIPES)
def test_our_own_recipes_are_for_any_task(scale):
    assert recipe_for("mine", scale) == recipe_for("ag", scale) == OWN_RECIPES[scale]
    assert OWN_RECIPES[scale].uses_general and OWN_RECIPES[scale].scale == scale


@pytest.mark.parametrize("scale", ["huge", "", "Small"])
def test_an_unknown_scale_lists_the_known_ones(scale):
    with pytest.raises(ValueError, match=f"scale '{scale}': allowed are tiny, mini, midi, small, medium, large"):
        recipe_for("ag", scale)


BAD = [
    ({"k": 21, "depth": 20}, r"k 21: must lie between 0 and depth \(20\).*raise --depth"),
    ({"k": -1}, "k -1: must lie between 0 and depth"),
    ({"rho1": -1}, "rho1 -1: must be a whole number of 0 or more, the general batches"),
    ({"rho1": 0.5}, "rho1 0.5: must be a whole number"),
    ({"rho1": 7.0}, "rho1 7.0: must be a whole number"),
    ({"rho1": True}, "rho1 True: must be a whole number"),
    ({"rho2": -0.1}, "rho2 -0.1: must be 0 or more, the weight of the MLM loss"),
    ({"rho2": math.nan}, "rho2 nan: must be 0 or more"),
    ({"method": "tfidf"}, "method 'tfidf': allowed are bm25, bm25s, rake, dense, dsir, random"),
    ({"weighting": "mean"}, "weighting 'mean': allowed are released, paper"),
    ({"precision": "fp8"}, "precision 'fp8': allowed are auto, fp32, bf16"),
    ({"passage_tokens": 0}, "passage_tokens 0: must be a whole number of 1 or more"),
    ({"block_tokens": 2}, "block_tokens 2: must be a whole number of 4 or more"),
    ({"task_tokens": 64.0}, r"task_tokens 64\.0: must be a whole number of 4 or more"),
    ({"auxiliary": (Generator(), Rtd())}, "auxiliary generator, rtd: give objectives of tokens, each once"),
    ({"objectives": (Rtd(), Generator())}, "objective rtd: needs a generator before it"),
    ({"objectives": (Mlm(), Sop())}, "objective sop: lays out the rows, so it must be the first of the objectives"),
    ({"block_tokens": 129}, "block_tokens and task_tokens: 129 is more than the model's 128 positions"),
    ({"task_tokens": 512}, "block_tokens and task_tokens: 512 is more than the model's 128 positions"),
]


def test_a_family_of_encoders_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="family 'gpt': allowed are albert, bert, distilbert, electra, gpt2, modern"):
        replace(TINY_RECIPE.start.geometry, family="gpt")


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_a_recipe_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY_RECIPE, **changes)


def test_depth_is_k_unless_given_and_lets_k_shrink():
    assert TINY_RECIPE.depth == TINY_RECIPE.k
    assert replace(TINY_RECIPE, k=0).depth == TINY_RECIPE.depth
    assert replace(TINY_RECIPE, k=50, depth=500).depth == 500
    assert replace(TINY_RECIPE, k=50, depth=0).depth == 50
    assert replace(TINY_RECIPE, k=0, depth=0).depth == 1


@pytest.mark.parametrize(
    ("changes", "uses"),
    [
        ({}, True),
        ({"rho2": 0}, True),
        ({"k": 0}, False),
        ({"rho1": 0}, False),
        ({"rho1": None}, True),
        ({"start": Pretrained("x")}, True),
        ({"start": Pretrained("x"), "stage_one": None}, False),
    ],
)
def test_general_text_is_an_input_only_where_it_is_read(changes, uses):
    assert replace(TINY_RECIPE, counts=None, **changes).uses_general is uses


def test_a_baseline_shares_stage_two_and_reads_no_general_text():
    recipe = recipe_for("sciie", "small")
    made = baseline(recipe, "google-bert/bert-base-uncased")
    assert (made.start.source, made.tokenizer) == ("google-bert/bert-base-uncased",) * 2
    assert made.stage_two == recipe.stage_two and made.stage_one is None
    assert not made.uses_general


def test_baselines_differ_in_what_comes_before_stage_two():
    recipe = recipe_for("sciie", "small")
    made = {kind: baseline(recipe, "google-bert/bert-base-uncased", kind) for kind in ("mlm", "tapt", "dapt", "tlm")}
    assert {recipe.start for recipe in made.values()} == {Pretrained("google-bert/bert-base-uncased")}
    assert all(own.stage_one == recipe.stage_one for own in made.values())
    assert {kind: own.uses_general for kind, own in made.items()} == {
        "mlm": False, "tapt": False, "dapt": True, "tlm": True,
    }  # fmt: skip
    assert (made["tapt"].weighting, made["mlm"].weighting) == ("mlm", recipe.weighting)
    assert (made["dapt"].method.name, made["dapt"].rho1) == ("random", None)
    assert (made["tlm"].k, made["tlm"].rho1, made["tlm"].method) == (recipe.k, recipe.rho1, recipe.method)
    theirs = with_gururangans_settings(baseline(recipe, "x", "dapt+tapt"), train_rows=1_000)
    stages = (theirs.after.stage_one, theirs.stage_one, theirs.stage_two)
    assert [(s.steps, s.batch_rows, s.learning_rate, s.weight_decay) for s in stages] == [
        (12_500, 2_048, 5e-4, 0.01), (391, 256, 1e-4, 0.01), (625, 16, 2e-5, 0.1)
    ]  # fmt: skip
    plain = with_gururangans_settings(baseline(recipe, "x"), train_rows=10_000)
    assert plain.stage_one is None and plain.stage_two.steps == 1_875
    with pytest.raises(ValueError, match="baseline 'x': allowed are plain, mlm, tapt, dapt, tlm"):
        baseline(recipe, "google-bert/bert-base-uncased", "x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stage_one": None}, "stage_one None: stage two needs a trained encoder"),
        (
            {"stage_one": None, "start": Architecture("x")},
            "stage_one None: stage two needs a trained encoder; give start",
        ),
        ({"objectives": ()}, r"objectives \(\): give one or more, each with a different name"),
        ({"objectives": (Mlm(), Mlm(masking=Masking(share=0.3)))}, "each with a different name"),
        ({"rho1": None, "k": 0}, "rho1 None: without task batches k must be 1 or more"),
    ],
)
def test_recipes_that_name_no_training_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY_RECIPE, **changes)


def test_a_correlation_is_its_definition():
    rng = np.random.default_rng(0)
    gold, predicted = rng.normal(size=50), rng.normal(size=50)

    def pearson(x, y):
        x, y = x - x.mean(), y - y.mean()
        return (x * y).sum() / math.sqrt((x * x).sum() * (y * y).sum())

    ranks = [np.argsort(np.argsort(x)).astype(float) for x in (gold, predicted)]
    expected = 50 * (pearson(gold, predicted) + pearson(*ranks))
    assert score("pearson_spearman", gold, predicted) == pytest.approx(expected)
    assert score("pearson_spearman", gold, 2 * gold + 1) == pytest.approx(100)
    assert score("pearson_spearman", gold, -gold) == pytest.approx(-100)
    assert score("pearson_spearman", gold, np.ones(50)) == 0
    with pytest.raises(ValueError, match=r"'pearson_spearman' got predicted of shape .* two or more finite numbers"):
        score("pearson_spearman", gold, np.full(50, np.nan))


def test_a_pretrained_row_has_its_own_architecture():
    made = baseline(replace(TINY_RECIPE, counts=None, start=Architecture("modernbert")), "bert", "tlm", train_rows=9)
    assert made.start == Pretrained("bert")
