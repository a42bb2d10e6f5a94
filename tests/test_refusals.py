"""Encoders that cannot be trained are refused before the first stage, in one line that says what is true of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small import small_flow, small_recipe
from tracked import empty_store
from transformers import AutoConfig

from tlm_ray import Training, baseline, run
from tlm_ray.compute import Compute
from tlm_ray.runs.flow.students import Teaching
from tlm_ray.runs.preflight import check_starts
from tlm_ray.runs.stages.making import Execution
from tlm_ray.training.encoders.starts import Architecture

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
BART = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
T5 = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
FUNNEL = {"block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64}
MOBILE = {"embedding_size": 16, "intra_bottleneck_size": 16}
AN_ENCODER_DECODER = "it is an encoder-decoder, and the objective 'labels' cannot train it"
A_DECODER = "it is a decoder: transformers has no AutoModelForMaskedLM of it"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bart": (BART, AN_ENCODER_DECODER),
    "t5": (T5, AN_ENCODER_DECODER),
    "gpt2": ({"n_embd": 32, "n_layer": 1, "n_head": 2}, A_DECODER),
    "llama": (SIZE, A_DECODER),
    "xlnet": ({"d_model": 32, "n_layer": 1, "n_head": 2, "d_inner": 64}, A_DECODER),
    "squeezebert": (SIZE | {"embedding_size": 32}, "its encoder does not run without its pooler"),
    "mobilebert": (SIZE | MOBILE, "its head for 'mlm' is more than a transform and one product with the vocabulary"),
    "funnel": (FUNNEL, "its encoder does not return one hidden state per token"),
    "longformer": (SIZE | {"attention_window": 8}, "its heads need more of the encoder than hidden states"),
}
TAKEN = ("albert", "bert", "big_bird", "distilbert", "electra", "modernbert", "mpnet", "roberta", "rembert", "xlm")

pytestmark = pytest.mark.usefixtures("alone")


def written(folder: Path, kind: str, sizes: dict[str, Any]) -> str:
    """Write a small configuration, which is all of an encoder that has no weights."""
    AutoConfig.for_model(kind, vocab_size=80, **sizes).save_pretrained(folder / kind)
    return str(folder / kind)


@pytest.mark.parametrize("as_start", [False, True], ids=["--architecture", "--start"])
@pytest.mark.parametrize("kind", REFUSED)
def test_the_true_reason_is_said_in_one_line_before_anything_is_made(data, tmp_path, monkeypatch, kind, as_start):
    monkeypatch.setattr("tlm_ray.runs.experiment.check_cluster", lambda *_: None)
    monkeypatch.setattr("tlm_ray.runs.experiment.fitted", lambda execution: execution)
    sizes, why = REFUSED[kind]
    source = written(tmp_path, kind, sizes)
    recipe = (
        baseline(small_recipe(), source, "tlm", train_rows=60) if as_start else small_recipe(start=Architecture(source))
    )
    flow = small_flow(data, tmp_path / "root")
    training = Training(row="other", task="topics", recipe=recipe)
    with pytest.raises(ValueError, match=rf"^architecture '{kind}': {why}[^\n]*; take an encoder, such as [^\n]+$"):
        run([training], flow, name="refused", tracking_uri=empty_store(tmp_path))
    if as_start:
        teaching = Teaching(recipe=recipe, seeds=(0,))
        with pytest.raises(ValueError, match=f"^architecture '{kind}': "):
            taught = Training(row="student", task="topics", recipe=small_recipe(), teaching=teaching)
            run([taught], flow, name="refused", tracking_uri=empty_store(tmp_path))
    if why == A_DECODER:
        with pytest.raises(ValueError, match="; a pretrained decoder is fine-tuned on labels alone by --before plain"):
            run([training], flow, name="refused", tracking_uri=empty_store(tmp_path))
    assert not any((tmp_path / "root").glob("*/*/record.json")), "nothing was made"


@pytest.mark.parametrize("kind", TAKEN)
def test_the_others_are_taken(tmp_path, kind):
    source = written(tmp_path, kind, SIZE)
    started = baseline(small_recipe(), source, train_rows=60)
    check_starts([small_recipe(start=Architecture(source)), started], Execution(root="r"))


@pytest.mark.parametrize(("kind", "positions"), [("bert", 48), ("distilbert", 48), ("roberta", 50), ("mpnet", 50)])
@pytest.mark.parametrize("before", ["plain", "tapt"])
def test_rows_longer_than_an_encoder_reads_are_refused_as_early(tmp_path, kind, positions, before):
    """The first two positions of RoBERTa and MPNet are those of padding. Neither recipe has general rows."""

    def check(known):
        source = written(tmp_path / str(known), kind, SIZE | {"max_position_embeddings": known})
        recipe = replace(baseline(small_recipe(), source, before, train_rows=60), block_tokens=128)
        check_starts([replace(recipe, task_tokens=20), recipe], Execution(root="r"))

    check(positions)
    with pytest.raises(ValueError, match=f"^architecture '{kind}': does not read a row of 48 tokens, as long as"):
        check(positions - 1)


def test_rows_that_would_see_each_other_are_refused_as_early(tmp_path):
    recipes = [small_recipe(start=Architecture(written(tmp_path, "mpnet", SIZE)))]
    with pytest.raises(ValueError, match="architecture 'mpnet': with --packed its result for a row depends on"):
        check_starts(recipes, Execution(root="r", compute=Compute(packed=True)))
