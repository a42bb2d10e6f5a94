"""Rows packed, padded and one by one: the same hidden states, losses and gradients, for three architectures."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rows import hand_batch
from transformers import (
    AutoConfig,
    BertConfig,
    ModernBertConfig,
    Qwen2Config,
    RobertaConfig,
    T5Config,
    T5EncoderModel,
)

from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.starts import scratch_config
from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.kernels import cpu
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.model.joint import Features, JointModel, packing
from tlm_ray.training.model.packing import first_position, rectangle
from tlm_ray.training.objectives import Clm, Labels, Mlm, step_loss
from tlm_ray.training.sampler.batches import Batch

# torch's own detour of nested tensors on a CPU
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
SIZE = {
    "vocab_size": 80,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "pad_token_id": 1,
    "num_labels": 3,
    "initializer_range": 0.2,
}
IDS = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 2)
CONFIGS = {
    "bert": BertConfig(**SIZE, max_position_embeddings=40, hidden_dropout_prob=0, attention_probs_dropout_prob=0),
    "roberta": RobertaConfig(**SIZE, max_position_embeddings=42, hidden_dropout_prob=0, attention_probs_dropout_prob=0),
    # windows of three tokens to each side, in two layers of three
    "modernbert": ModernBertConfig(**SIZE, **IDS, local_attention=6, global_attn_every_n_layers=3),
    "modernbert, the mean of a row": scratch_config(
        Geometry(family="modernbert", layers=2, width=32, heads=2, intermediate=64, dropout=0.0, init_std=0.2),
        vocabulary=80,
        pad_id=1,
        labels=("a", "b", "c"),
    ),
}
ROWS, LENGTH = 5, 17


def make_batch(types: bool) -> Batch:
    """Rows of 2 to 17 tokens with a quarter masked and labels."""
    rng = np.random.default_rng(0)
    lengths = np.array([2, 17, 9, 5, 12])
    attention = (np.arange(LENGTH) < lengths[:, None]).astype(np.int64)
    tokens = np.where(attention, rng.integers(5, 80, (ROWS, LENGTH)), 1)
    return hand_batch(
        tokens,
        attention,
        types=attention * rng.integers(0, 2, (ROWS, LENGTH)) if types else None,
        chosen=(rng.random((ROWS, LENGTH)) < 0.25) & (attention == 1),
        values=rng.integers(5, 80, (ROWS, LENGTH)),
        labels=rng.integers(0, 3, ROWS),
        rho2=2.0,
        weighting="paper",
    )


def make_model(config) -> JointModel:
    return JointModel(RandomWeights(config, seed=0), (Labels(), Mlm()))


def learned(model: JointModel, parts: list[Batch], *, first: int | None = None) -> dict[str, torch.Tensor]:
    """Return hidden states of real tokens, both losses and all gradients of a batch that is computed in parts."""
    model.zero_grad()
    hidden, losses = [], []
    for part in parts:
        inputs, predictions = to_device(part, "cpu", first=first)
        states, inside = rectangle(model.encode(inputs), inputs)
        hidden.append(states[inside.bool()].detach())
        sums = model(inputs, predictions)
        losses.append(torch.stack([sums["mlm"], sums["labels"]]))
        step_loss(sums, part.targets, part.loss, token_share=part.token_share, world=1).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    return gradients | {"hidden": torch.cat(hidden), "losses": torch.stack(losses).detach().sum(0) / ROWS}


@pytest.mark.parametrize("name", CONFIGS)
def test_packed_padded_and_one_by_one_are_the_same(name):
    model = make_model(CONFIGS[name]).train()
    batch = make_batch(types=name == "bert")
    one_by_one = learned(model, list(batch.parts(1)))
    found = {"padded": learned(model, [batch])}
    found["padded, for CPUs"] = learned(model.on("cpu"), [batch])
    found["packed"] = learned(model.on("cpu", packed=True), [batch], first=first_position(model.encoder))
    for layout, own in found.items():
        for part, expected in one_by_one.items():
            message = f"{layout}: {part}"
            torch.testing.assert_close(own[part], expected, rtol=1e-5, atol=1e-5, msg=lambda m, n=message: f"{n} {m}")


@pytest.mark.parametrize("name", CONFIGS)
def test_packed_rows_do_not_see_each_other(name):
    model = make_model(CONFIGS[name]).on("cpu", packed=True).eval()
    batch, first = make_batch(types=False), first_position(model.encoder)
    other = replace(batch, tokens=np.where(np.arange(ROWS)[:, None] == 1, (batch.tokens + 7) % 80, batch.tokens))
    states = [model.encode(to_device(one, "cpu", first=first)[0])[0] for one in (batch, other)]
    changed = (states[0] != states[1]).any(1)
    assert changed[2 : 2 + 17].all() and not changed[:2].any() and not changed[19:].any()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shared", [1, 2])
def test_query_heads_that_share_keys_have_the_states_of_transformers(shared, packed):
    config = Qwen2Config(**SIZE | {"num_attention_heads": 4}, num_key_value_heads=shared)
    model, batch = JointModel(RandomWeights(config, seed=0), (Labels(), Clm())).eval(), make_batch(types=False)
    inside = torch.from_numpy(batch.attention == 1)
    expected = model.encode(to_device(batch, "cpu")[0])[inside]
    inputs, _ = to_device(batch, "cpu", first=0 if packed else None)
    found = model.on("cpu", packed=packed).encode(inputs)
    torch.testing.assert_close(found[0] if packed else found[inside], expected, rtol=1e-5, atol=1e-5)


def test_an_architecture_whose_heads_need_more_than_hidden_states_is_refused():
    config = AutoConfig.for_model("longformer", attention_window=8, **SIZE)
    with pytest.raises(ValueError, match="architecture 'longformer': its heads need more of the encoder"):
        make_model(config)
    with pytest.raises(ValueError, match="architecture 't5': it is an encoder-decoder"):
        make_model(T5Config(vocab_size=80, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2))


def test_first_positions_are_those_of_the_architectures():
    first = {name: first_position(make_model(c).encoder) for name, c in CONFIGS.items()}
    assert {n: p for n, p in first.items() if p} == {"roberta": 2}


@pytest.mark.parametrize("packed", [False, True])
def test_an_encoder_that_adds_a_bias_by_position_is_refused(packed):
    size = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
    encoder = T5EncoderModel(T5Config(vocab_size=80, **size)).eval()
    cpu.register()
    packing.register()
    encoder.set_attn_implementation(packing.ATTENTION if packed else cpu.ATTENTION)
    with pytest.raises(ValueError, match="adds a position bias"):
        encoder(torch.arange(6)[None])


@pytest.mark.parametrize("taught", ["bert", "roberta"])
def test_a_teacher_reads_packed_rows_at_its_own_positions(taught, tmp_path):
    """RoBERTa counts them from the number behind the padding's."""
    student, teacher = CONFIGS[taught], CONFIGS["roberta" if taught == "bert" else "bert"]
    found = []
    for packed in (False, True):
        model = JointModel(RandomWeights(student, seed=0), (Mlm(),), teacher=make_model(teacher))
        model = model.on("cpu", packed=packed).eval()
        first = first_position(model.encoder) if packed else None
        inputs, _ = to_device(make_batch(types=False), "cpu", first=first)
        with torch.no_grad():
            hidden, inside = rectangle(Features(model, inputs).teacher.hidden, inputs)
        found.append(hidden[inside.bool()])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
