"""Losses over the vocabulary against torch's own: values, gradients, precision, and what is held in memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, kl_div, linear

from tlm_ray.training.kernels import projected_losses as module
from tlm_ray.training.kernels.projected_losses import ProjectedCrossEntropy, ProjectedDivergence

VOCABULARY, WIDTH = 300, 16


def inputs(rows, *, bias=True, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = [scale * torch.randn(rows, WIDTH, generator=generator), torch.randn(VOCABULARY, WIDTH, generator=generator)]
    made += [torch.randn(VOCABULARY, generator=generator)] if bias else []
    return [x.requires_grad_() for x in made], torch.randint(VOCABULARY, (rows,), generator=generator)


def projected(hidden, weight, bias=None, *, targets):
    return ProjectedCrossEntropy.apply(hidden, weight, bias, targets)


def plain(hidden, weight, bias=None, *, targets):
    return cross_entropy(linear(hidden, weight, bias).float(), targets, reduction="sum")


def divergence(hidden, weight, bias=None, *, targets):
    return ProjectedDivergence.apply(hidden, weight, bias, targets)


def plain_divergence(hidden, weight, bias=None, *, targets):
    own, known = (logits.float().log_softmax(-1) for logits in (linear(hidden, weight, bias), targets))
    return kl_div(own, known, reduction="sum", log_target=True)


def known_logits(rows, seed=1):
    return 3 * torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def saved_bytes(function, tensors, targets):
    """Return the bytes that the backward pass of a function waits for, the inputs not counted."""
    kept = {}
    given_ = {tensor.untyped_storage().data_ptr() for tensor in tensors}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        function(*tensors, targets=targets)
    return sum(size for place, size in kept.items() if place not in given_)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cache_bytes", [1, 4 * VOCABULARY * 7, 1 << 21])
@pytest.mark.parametrize("rows", [0, 1, 40])
@pytest.mark.parametrize("pair", [(projected, plain), (divergence, plain_divergence)])
def test_losses_and_gradients_are_torchs(monkeypatch, pair, rows, cache_bytes, bias):
    monkeypatch.setattr(module, "CACHE_BYTES", cache_bytes)
    results = []
    for function in pair:
        tensors, targets = inputs(rows, bias=bias)
        targets = targets if function in (projected, plain) else known_logits(rows)
        loss = function(*tensors, targets=targets)
        (3.5 * loss).backward()
        results.append([loss.detach(), *(tensor.grad for tensor in tensors)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_rows_without_a_target_count_for_nothing():
    (hidden, *others), targets = inputs(40)
    targets = targets[:33]
    loss = projected(hidden, *others, targets=targets)
    loss.backward()
    (first, *same), _ = inputs(40)
    torch.testing.assert_close(loss, plain(first[:33], *same, targets=targets))
    assert not hidden.grad[33:].any() and hidden.grad[:33].any(dim=1).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1e-3, 1.0, 300.0, 1e4]))
def test_large_and_small_logits_do_not_overflow(seed, scale):
    tensors, targets = inputs(5, scale=scale, seed=seed)
    loss = projected(*tensors, targets=targets)
    loss.backward()
    torch.testing.assert_close(loss, plain(*tensors, targets=targets), rtol=1e-5, atol=1e-4)
    assert all(torch.isfinite(tensor.grad).all() for tensor in tensors)


def test_a_loss_that_is_not_finite_shows():
    tensors, targets = inputs(3)
    with torch.no_grad():
        tensors[0][1, 0] = torch.nan
    assert torch.isnan(projected(*tensors, targets=targets))


def test_autocast_is_as_near_to_fp32_as_torchs_own():
    exact_tensors, targets = inputs(40)
    exact = plain(*exact_tensors, targets=targets)
    exact.backward()
    apart = {}
    for function in (projected, plain):
        tensors, _ = inputs(40)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = function(*tensors, targets=targets)
        loss.backward()
        assert all(tensor.grad.dtype == torch.float32 for tensor in tensors)
        apart[function] = [float((loss / exact - 1).detach().abs())] + [
            float((a.grad - b.grad).norm() / b.grad.norm()) for a, b in zip(tensors, exact_tensors, strict=True)
        ]
    assert all(ours <= 1.1 * theirs + 1e-3 for ours, theirs in zip(apart[projected], apart[plain], strict=True))
    assert apart[projected][0] < 0.01


def test_divergence_under_autocast_is_as_near_to_fp32_as_torchs_own():
    exact_tensors, _ = inputs(40)
    known = known_logits(40)
    plain_divergence(*exact_tensors, targets=known).backward()
    apart = []
    for function in (divergence, plain_divergence):
        tensors, _ = inputs(40)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = function(*tensors, targets=known.bfloat16())
        loss.backward()
        apart.append(
            [float((a.grad - b.grad).norm() / b.grad.norm()) for a, b in zip(tensors, exact_tensors, strict=True)]
        )
    assert all(ours <= 1.1 * theirs + 1e-3 for ours, theirs in zip(*apart, strict=True))


def test_divergence_holds_one_array_of_logits_and_leaves_the_teachers_alone():
    tensors, _ = inputs(200)
    known = known_logits(200)
    before, one = known.clone(), 4 * 200 * VOCABULARY
    assert (
        saved_bytes(divergence, tensors, known)
        <= 1.2 * one
        < 1.9 * one
        <= saved_bytes(plain_divergence, tensors, known)
    )
    assert torch.equal(known, before)


def test_the_losss_memory_is_a_fifth_of_full_logits_at_most():
    positions = 200
    tensors, targets = inputs(positions)
    full = saved_bytes(plain, tensors, targets)
    masked, some = inputs(int(0.15 * positions))
    assert full >= 4 * positions * VOCABULARY
    assert saved_bytes(projected, masked, some) <= full / 5
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert saved_bytes(projected, masked, some) <= full / 8  # copies of the factors in bf16 included
