"""What a model makes of a row may depend on no other row of its batch: models for which it would are refused."""

from typing import Any

import pytest
import torch
import transformers

from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Labels, Mlm

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 2}
RELATIVE = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}
WITHOUT_ATTENTION = {name: size for name, size in SIZE.items() if name != "num_attention_heads"}
SEE_EACH_OTHER: dict[str, dict[str, Any]] = {
    "big_bird": SIZE | {"attention_type": "original_full"},
    "deberta-v2": SIZE | RELATIVE,
    "mpnet": SIZE,
    "xlm": XLM,
}
SEE_PADDING: dict[str, dict[str, Any]] = {"convbert": SIZE | {"embedding_size": 32}, "fnet": WITHOUT_ATTENTION}
APART = ("albert", "bert", "distilbert", "electra", "roberta")


def make_model(kind: str, **sizes: Any) -> JointModel:
    """Return a small model with the random weights that transformers gives it by default, and dropout."""
    config = transformers.AutoConfig.for_model(kind, vocab_size=80, pad_token_id=1, num_labels=3, **sizes)
    return JointModel(RandomWeights(config, seed=0), (Labels(), Mlm()))


@pytest.mark.parametrize("kind", SEE_EACH_OTHER)
def test_an_encoder_whose_packed_rows_see_each_other_is_refused_and_is_not_where_rows_are_padded(kind):
    message = rf"^architecture '{kind}': with --packed its result for a row depends on the other rows; leave --packed"
    with pytest.raises(ValueError, match=message):
        make_model(kind, **SEE_EACH_OTHER[kind]).on("cpu", packed=True)
    make_model(kind, **SEE_EACH_OTHER[kind]).on("cpu")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", SEE_PADDING)
def test_an_encoder_that_sees_the_padding_behind_a_row_is_refused(kind, packed):
    message = rf"^architecture '{kind}': its result for a row depends on the padding behind it[^\n]* take another"
    with pytest.raises(ValueError, match=message):
        make_model(kind, **SEE_PADDING[kind]).on("cpu", packed=packed)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", APART)
def test_the_others_are_taken_and_left_as_they_are(kind, packed):
    model = make_model(kind, **SIZE).on("cpu")
    model.heads.train()
    modes = {name: module.training for name, module in model.named_modules()}
    weights, draws = [p.clone() for p in model.parameters()], torch.get_rng_state()
    model.on("cpu", packed=packed)
    assert torch.equal(torch.get_rng_state(), draws)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), weights, strict=True))
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert len(set(modes.values())) == 2, "some parts were set to train, some to evaluate"
