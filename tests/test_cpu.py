"""Dropout and attention on a CPU, against their definitions and transformers' own."""

from types import SimpleNamespace

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from tlm_ray.training.kernels import cpu
from tlm_ray.training.kernels.cpu import ATTENTION, Biased, Dropout, Linear, attention, drop, prepare, register


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("shape", [(1_000_003,), (100, 101, 99)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropped_elements_are_as_many_and_the_others_scaled(shape, dtype, p):
    torch.manual_seed(0)
    dropped = drop(torch.ones(shape, dtype=dtype), p)
    count, zeros = dropped.numel(), int((dropped == 0).sum())
    assert abs(zeros - p * count) < 5 * (count * p * (1 - p)) ** 0.5
    kept = dropped[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)))


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    zero = (drop(torch.ones(2_000_000), 0.1) == 0).float()
    for apart in (1, 2, 3, 4, 8, 64):
        both = float((zero[apart:] * zero[:-apart]).mean())
        assert abs(both - 0.01) < 5 * (0.01 * 0.99 / 2e6) ** 0.5


def test_the_gradient_passes_where_the_value_passed_and_a_seed_repeats_it():
    x, found = torch.full((64, 64), 2.0, requires_grad=True), []
    for _ in range(2):
        torch.manual_seed(7)
        y = drop(x, 0.3)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(gradient * 2, y.detach())
        found.append(y.detach())
    assert torch.equal(*found) and not torch.equal(found[0], drop(x.detach(), 0.3))


def test_nothing_is_dropped_in_evaluation_or_without_a_share():
    x = torch.randn(50)
    assert Dropout(0.5).eval()(x) is x and Dropout(0.0).train()(x) is x


@pytest.mark.parametrize("scores", [1, cpu.SCORES])
def test_a_prepared_model_computes_what_transformers_does(monkeypatch, scores):
    monkeypatch.setattr(cpu, "SCORES", scores)
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=50, **size)).eval()
    tokens = torch.randint(5, 50, (4, 12))
    mask = (torch.arange(12) < torch.tensor([[12], [3], [1], [7]])).long()
    expected = model(input_ids=tokens, attention_mask=mask).logits
    names = set(model.state_dict())
    register()
    prepare(model)
    model.set_attn_implementation(ATTENTION)
    torch.testing.assert_close(model(input_ids=tokens, attention_mask=mask).logits, expected, rtol=1e-5, atol=1e-6)
    assert set(model.state_dict()) == names
    model.train()
    torch.manual_seed(1)
    one, two = (model(input_ids=tokens, attention_mask=mask).logits for _ in range(2))
    assert not torch.equal(one, two)


def test_attention_shares_are_dropped_too():
    query = key = torch.zeros(1, 1, 100, 8)
    value = torch.eye(100)[None, None]
    torch.manual_seed(0)
    shares, _ = attention(torch.nn.Identity(), query, key, value, None, dropout=0.25, scaling=1.0)
    assert abs(float((shares == 0).float().mean()) - 0.25) < 0.03
    torch.testing.assert_close(shares.max(), torch.tensor(0.01 / 0.75))


MASKS = {"none": None, "of all": (1, 1, 1, 8), "of each": (5, 1, 1, 8), "of places": (5, 1, 8, 8)}


@pytest.mark.parametrize("shape", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("scores", "groups"), [(1, 5), (2 * 64, 5), (2 * 2 * 64, 3), (2**20, 1)])
def test_groups_of_rows_have_the_bits_of_all_together(monkeypatch, scores, groups, dtype, shape):
    torch.manual_seed(0)
    rows = torch.randn(3, 5, 2, 8, 4).to(dtype)
    mask = None if shape is None else torch.where(torch.rand(shape) > 0.3, 0.0, -1e4)  # fp32, as under autocast
    found, calls, whole = [], [], cpu._attended
    monkeypatch.setattr(cpu, "_attended", lambda *group, **how: (calls.append(group), whole(*group, **how))[1])
    for size in (scores, 2**30):
        monkeypatch.setattr(cpu, "SCORES", size)
        own = rows.clone().requires_grad_()
        torch.manual_seed(1)
        said, _ = attention(torch.nn.Identity(), *own, mask, dropout=0.25, scaling=0.5)
        said.float().pow(2).sum().backward()
        found.append((said, own.grad))
    assert len(calls) == groups + 1 and said.shape == (5, 8, 2, 4)
    assert all(map(torch.equal, *found))


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="a CPU without products of 16 bits")
@pytest.mark.parametrize("rows", [0, 1, 7, 300])
def test_linear_maps_have_the_bits_of_torchs_own_under_autocast(rows):
    torch.manual_seed(0)
    plain = torch.nn.Linear(24, 40)
    ours, x, found = Linear(plain), torch.randn(2, rows, 24), []
    for module in (plain, ours):
        own = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = module(own)
        y.float().pow(2).sum().backward()
        found.append((y, own.grad, plain.weight.grad, plain.bias.grad))
        plain.zero_grad()
    for expected, got in zip(*found, strict=True):
        assert got.dtype == expected.dtype and torch.equal(got, expected)
    assert torch.equal(ours(x), plain(x))


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="a CPU without products of 16 bits")
def test_a_frozen_linear_map_passes_its_gradient_on_and_computes_none_of_its_own():
    x, weight, gradient = torch.randn(3, 24), torch.randn(40, 24), torch.randn(3, 40)
    frozen = SimpleNamespace(saved_tensors=(x, weight), needs_input_grad=(True, False, False))
    with torch.no_grad():
        of_x, *others = Biased.backward(frozen, gradient)
    torch.testing.assert_close(of_x, gradient @ weight)
    assert others == [None, None]
