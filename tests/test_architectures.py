"""Every model type of transformers with an encoder or a decoder: its rows depend on nothing else, or it is refused.

A model is small and has random weights. `JointModel.on` compares its rows padded, padded further and packed.
"""

import pytest
import torch
import transformers
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Clm, Labels, Mlm, Objective

# by the names that configurations have for them; a configuration takes those that it knows
SIZES = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2},
    **{"intermediate_size": 64, "vocab_size": 80, "max_position_embeddings": 64, "head_dim": 16, "embedding_size": 32},
    **{"d_model": 32, "n_layers": 2, "n_heads": 2, "emb_dim": 32, "n_embd": 32, "n_layer": 2, "n_head": 2},
    **{"encoder_layers": 2, "decoder_layers": 2, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None},
}
OTHERS = {
    "falcon": {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2},
    "funnel": {"block_sizes": [1, 1], "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64},
    "gpt_neo": {"hidden_size": 32, "num_heads": 2, "num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "reformer": {"axial_pos_embds": False, "hidden_size": 32, "num_attention_heads": 2, "is_decoder": False},
    "xlnet": {"d_model": 32, "n_head": 2, "n_layer": 2, "d_inner": 64},
}
MOST = 5e6  # parameters; other models have parts, such as an image encoder, that these sizes do not shrink
TAKEN = {
    **dict.fromkeys(("albert", "bert", "camembert", "distilbert", "electra", "ernie", "eurobert"), "all"),
    **dict.fromkeys(("modernbert", "nomic_bert", "roberta", "roberta-prelayernorm"), "all"),
    **dict.fromkeys(("big_bird", "deberta", "deberta-v2", "megatron-bert", "mpnet", "rembert", "roformer"), "padded"),
    **dict.fromkeys(("bart", "convbert", "fnet", "funnel", "mobilebert", "nystromformer", "squeezebert"), "none"),
}
DECODERS = {
    **dict.fromkeys(("gpt2", "gpt_neox", "llama", "mistral", "phi", "qwen2", "qwen3", "smollm3"), "all"),
    **dict.fromkeys(("bloom", "falcon"), "padded"),
    **dict.fromkeys(("granite", "bart", "bert", "gemma2", "opt", "roberta"), "none"),
}


def small_config(kind: str) -> transformers.PretrainedConfig:
    """Return a small configuration of a model type, in its own names."""
    own = OTHERS.get(kind)
    if own is None:
        default = AutoConfig.for_model(kind)
        own = {name: size for name, size in SIZES.items() if hasattr(default, name)}
    return AutoConfig.for_model(kind, **({"vocab_size": 80, "pad_token_id": 0} | own), num_labels=3)


def outcome(kind: str, objective: Objective) -> str:
    """Return "all" if a type is taken padded and packed, "padded", or "none"; fail on any but a line of ours."""
    try:
        config = small_config(kind)
        with torch.device("meta"):
            model = getattr(transformers, objective.opens_as).from_config(config)
    except Exception:  # transformers itself needs other sizes, or finds this configuration wrong
        return "not made"
    if sum(p.numel() for p in model.parameters()) > MOST:
        return "large"
    taken = []
    for packed in (False, True):
        try:
            JointModel(RandomWeights(config, seed=0), (Labels(), objective)).on("cpu", packed=packed)
        except ValueError as error:
            assert str(error).startswith(f"architecture {config.model_type!r}: ") and "\n" not in str(error), kind
        else:
            taken.append(packed)
    return {0: "none", 1: "padded", 2: "all"}[len(taken)]


@pytest.mark.parametrize(("objective", "expected"), [(Mlm(), TAKEN), (Clm(), DECODERS)], ids=["encoders", "decoders"])
@pytest.mark.filterwarnings("ignore")
def test_known_types_are_right_or_refused_in_one_line(objective, expected):
    transformers.utils.logging.set_verbosity_error()
    assert {kind: outcome(kind, objective) for kind in expected} == expected


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "objective", "least"),
    [(MODEL_FOR_MASKED_LM_MAPPING_NAMES, Mlm(), 30), (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, Clm(), 35)],
    ids=["encoders", "decoders"],
)
@pytest.mark.filterwarnings("ignore")
def test_every_type_is_right_or_refused_in_one_line(kinds, objective, least):
    transformers.utils.logging.set_verbosity_error()
    found = {kind: outcome(kind, objective) for kind in kinds}
    assert sum(one in ("all", "padded") for one in found.values()) >= least, found


@pytest.mark.parametrize(
    ("kind", "objective", "why"),
    [
        ("gpt2", Mlm(), "it is a decoder: transformers has no AutoModelForMaskedLM of it, which the objective 'mlm'"),
        (
            "granite",
            Clm(),
            "transformers has no AutoModelForSequenceClassification of it, which the objective 'labels'",
        ),
        ("bert", Clm(), "it is an encoder, whose states see later tokens, so next tokens would be copied; take a deco"),
        ("t5", Mlm(), "it is an encoder-decoder, and the objective 'labels' cannot train it"),
    ],
)
def test_the_line_has_the_reason(kind, objective, why):
    with pytest.raises(ValueError, match=f"architecture '{kind}': {why}"):
        JointModel(RandomWeights(small_config(kind), seed=0), (Labels(), objective)).on("cpu")
