"""The counted operations of steps, against torch's own counter on the real model, and against formulas by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import hand_batch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig

from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.encoders.starts import scratch_config
from tlm_ray.training.encoders.weights import RandomWeights
from tlm_ray.training.model.flops import RESULTS, Flops, _Products, matmul_rate
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Labels, Mlm

VOCABULARY, LABELS, LAYERS, WIDTH, INTERMEDIATE = 90, ("a", "b", "c"), 2, 32, 80
GEOMETRY = Geometry(layers=LAYERS, width=WIDTH, heads=2, intermediate=INTERMEDIATE, positions=64, dropout=0.1)
SMALL = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": INTERMEDIATE,
}
RELATIVE = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 64}
ENCODERS = {
    "roberta": {},
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
    "distilbert": {"dim": WIDTH, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": INTERMEDIATE},
    "deberta": RELATIVE,
    "deberta-v2": RELATIVE | {"position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
    "modernbert": {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
}


def stage_one_model(vocabulary=VOCABULARY, **changes):
    config = scratch_config(replace(GEOMETRY, **changes), vocabulary=vocabulary, pad_id=0, labels=LABELS)
    return JointModel(RandomWeights(config, seed=0), (Labels(), Mlm()))


def stage_two_model(kind, **sizes):
    config = AutoConfig.for_model(kind, num_labels=len(LABELS), vocab_size=VOCABULARY, **sizes)
    return JointModel(RandomWeights(config, seed=0), (Labels(),))


def make_batch(lengths, *, masked, labelled, width=0):
    """A batch of rows of given lengths; masked: how many of their tokens, None for a batch without MLM."""
    width = max(width, *lengths)
    attention = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int64)
    tokens, chosen = np.where(attention, 7, 0), np.zeros(attention.shape, bool)
    chosen.ravel()[np.flatnonzero(attention)[:masked]] = True
    predicted = {} if masked is None else {"chosen": chosen, "values": tokens}
    labels = np.zeros(len(lengths), np.int64) if labelled else None
    return hand_batch(tokens, attention, labels=labels, **predicted)


def counted_by_torch(model, batch):
    """What torch's counter finds while the model trains on a batch."""
    model.train()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        sum(model(*to_device(batch, "cpu")).values()).backward()
    model.zero_grad()
    return counter.get_total_flops()


@pytest.fixture(scope="module", params=["as on a CPU", "as on a GPU"])
def joint(request):
    """Stage one's model and its counts, shared by all shapes."""
    model = stage_one_model()
    model = model.on("cpu") if request.param == "as on a CPU" else model
    return model, Flops(model)


@settings(max_examples=12, deadline=None, database=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=9),
    masked=st.none() | st.integers(0, 100),
    labelled=st.booleans(),
)
def test_a_step_counts_what_torchs_counter_counts(joint, lengths, masked, labelled):
    model, flops = joint
    labelled = labelled or masked is None  # a batch trains something
    batch = make_batch(lengths, masked=masked, labelled=labelled)
    assert flops.computed(batch) == counted_by_torch(model, batch) > 0


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_step_of_any_encoder_counts_what_torchs_counter_counts(kind):
    model = stage_two_model(kind, **(SMALL | ENCODERS[kind])).on("cpu")
    flops = Flops(model)
    for lengths in ([9, 4, 9], [1], [30, 31, 32, 33, 1]):
        batch = make_batch(lengths, masked=None, labelled=True)
        assert flops.computed(batch) == counted_by_torch(model, batch) > 0


def test_sizes_that_another_model_met_change_no_count():
    """Results are looked up by operation and sizes: those of other models, of another precision among them."""
    models = [stage_one_model(), stage_one_model(layers=3), stage_one_model().to(torch.bfloat16)]
    models += [stage_two_model(kind, **(SMALL | ENCODERS[kind])) for kind in ENCODERS]
    labels = make_batch([9, 4, 30], masked=None, labelled=True)

    def counts(*, forget):
        for model in models:
            if forget:
                RESULTS.clear()
            yield Flops(model).computed(labels)

    alone = list(counts(forget=True))
    assert alone == list(counts(forget=False)) == list(counts(forget=False)) and min(alone) > 0


X = torch.empty(6, 4, device="meta")
OPERATIONS = {
    "another type": lambda: [x.relu() for x in (X, X.double(), X.bfloat16(), X.half())],
    "other strides": lambda: [x.clone() for x in (X, X[:, ::2], X.t(), X.t().contiguous())],
    "another kind of number": lambda: [X.long() * 2, X.long() * 2.0, X.long() * True, X.pow(2), X.pow(2.0)],
    "an option": lambda: [X.sum(0), X.sum(0, keepdim=True), X.sum(0, dtype=torch.float64), X.sum(1)],
    "several results": lambda: [*X.max(0), *X.max(1), *X.split(2), *X.split(3)],
    "another operation": lambda: [X.relu(), X.bool(), X.argmax(0), X.amax(0)],
    "written in place": lambda: [one := X.clone(), one.resize_(3, 2), X.clone(), X.clone().t_()],
    "a layout": lambda: [
        torch.sparse_coo_tensor(
            torch.empty(1, 2, dtype=torch.long, device="meta"), X[:2], (9, 4), check_invariants=False
        )
    ],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_result_that_is_looked_up_has_the_form_that_torch_gives(name):
    def forms():
        given = OPERATIONS[name]()
        strides = [one.stride() if one.layout is torch.strided else () for one in given]
        return [(one.shape, one.dtype, one.device, one.layout) for one in given], strides

    expected = forms()
    for _ in range(2):  # looked up the second time
        with _Products():
            assert forms() == expected
    with _Products():
        results = OPERATIONS[name]()
        again = OPERATIONS[name]()
    assert not {id(one) for one in results} & {id(one) for one in again}, "each is a tensor of its own"


@pytest.mark.parametrize("steps", [1, 3])
def test_numbers_on_the_cpu_keep_their_values(steps):
    class Repeating(torch.nn.Module):
        """How often its layer works is a number in a tensor."""

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, inputs, *_):
            x = inputs["input_ids"][..., None] * self.layer.weight[0]
            for _ in torch.arange(steps).tolist() + [0] * int(torch.full((2,), steps)[0]):
                x = self.layer(x)
            return {"labels": x.sum()}

    flops, batch = Flops(Repeating()), make_batch([9, 4], masked=None, labelled=True)
    assert flops.computed(batch) == 2 * steps * 3 * 2 * 2 * 9 * WIDTH * WIDTH
    assert all(one.is_meta for one in RESULTS.values() if isinstance(one, torch.Tensor))


class Folding(torch.nn.Module):
    """Its products grow with half the width of a batch, rounded up."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs, *_):
        tokens = inputs["input_ids"][:, ::2, None] * self.layer.weight[0]
        return {"labels": self.layer(tokens).sum()}


class Looking(Folding):
    """Its products depend on how many tokens there are of a kind."""

    def forward(self, inputs, *_):
        seven = inputs["input_ids"].flatten().nonzero() * self.layer.weight[0]
        return {"labels": self.layer(seven).sum()}


@pytest.mark.parametrize("model", [Folding(), Looking()])
def test_an_encoder_that_is_no_sum_of_such_terms_is_not_counted(model):
    flops, batch = Flops(model), make_batch([9, 4], masked=None, labelled=True)
    assert flops.unknown == [] and flops.computed(batch) == flops.real(batch) == 0
    assert flops.unknown == ["labels"]


@pytest.mark.parametrize("vocabulary", [90, 5 * 7 * 11 * 13, 5 * 7 * 131])
def test_sizes_of_the_model_that_small_primes_divide_are_no_sizes_of_the_batch(vocabulary):
    model = stage_one_model(vocabulary, intermediate=5 * 17)
    batch = make_batch([30, 8], masked=33, labelled=True)
    assert Flops(model).computed(batch) == counted_by_torch(model, batch)


def real_by_hand(lengths, masked):
    """Six operations a weight and token, and twelve a width, layer and pair of tokens of a row."""
    weights = LAYERS * (4 * WIDTH * WIDTH + 2 * WIDTH * INTERMEDIATE)
    attention = 12 * LAYERS * WIDTH * sum(length**2 for length in lengths)
    vocabulary = 6 * masked * WIDTH * (VOCABULARY + WIDTH)
    return 6 * sum(lengths) * weights + attention + vocabulary


def test_real_operations_are_those_of_the_rows_own_lengths():
    lengths, flops = [20, 7, 13], Flops(stage_one_model())
    batch = make_batch(lengths, masked=10, labelled=False, width=25)
    assert flops.real(batch) == real_by_hand(lengths, 10)
    assert flops.real(batch) < flops.computed(batch)
    full = make_batch([32, 32], masked=64, labelled=True)
    assert flops.real(full) == flops.computed(full)


def test_counting_changes_nothing_of_the_model():
    model = stage_one_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    batch = make_batch([9, 4], masked=3, labelled=True)
    expected = model.eval()(*to_device(batch, "cpu"))
    model.train()
    assert Flops(model).computed(batch) > 0 and model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None and type(p) is torch.nn.Parameter for p in model.parameters())
    again = model.eval()(*to_device(batch, "cpu"))
    assert again.keys() == expected.keys() and all(torch.equal(again[name], expected[name]) for name in again)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_rate_of_products_is_a_devices(precision):
    assert 1e8 < matmul_rate("cpu", precision) < 1e14
    assert matmul_rate("cpu", precision) == matmul_rate("cpu", precision), "it is measured once"
