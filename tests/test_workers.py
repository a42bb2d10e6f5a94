"""Several workers train the model that one trains, with copies of the weights (DDP) or shares of them (FSDP2)."""

import functools

import pytest
import torch
from crews import Case, make_scored, run_crew
from trainings import (
    Interrupted,
    ignore,
    interrupt_at,
    losses_of,
    one_thread,  # noqa: F401 - a fixture
    untimed,
)

from tlm_ray.training.loop.averaging import MEAN
from tlm_ray.training.loop.checkpoints import read_checkpoint, save_checkpoint, snapshot
from tlm_ray.training.loop.worker import Worker

pytestmark = pytest.mark.slow
KINDS = {"copied": False, "sharded": True}


@functools.cache
def alone():
    """The training of one worker."""
    trainer = make_scored(Case(name="alone", sharded=False), Worker())
    trainer.run(ignore)
    return trainer.progress, snapshot(trainer.model)


WORLDS = [2, pytest.param(3, marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=WORLDS, ids=lambda world: f"{world} workers")
def crew(request, tmp_path_factory):
    """The results of all cases on two and on three workers, and the folder of their checkpoints."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp(f"crew{request.param}")
    one = make_scored(Case(name="one", sharded=False), Worker())
    with pytest.raises(Interrupted):
        one.run(ignore, tick=lambda progress: interrupt_at(progress, 6))
    save_checkpoint(f"{folder}/one", one._take())
    cases = []
    for kind, sharded in KINDS.items():
        cases += [
            Case(name=kind, sharded=sharded),
            Case(name=f"{kind}, two rows at once", sharded=sharded, micro_rows=2),
            Case(name=f"{kind}, begun by one", sharded=sharded, start=f"{folder}/one"),
            Case(name=f"{kind}, interrupted", sharded=sharded, stops=(6, 10)),
            Case(name=f"{kind}, moved", sharded=sharded, leaves=(2, 8)),
        ]
    return run_crew(request.param, cases, folder), folder


@pytest.mark.parametrize("how", ["", ", two rows at once", ", begun by one"], ids=["whole", "in parts", "begun by one"])
@pytest.mark.parametrize("kind", KINDS)
def test_several_workers_train_the_model_of_one(crew, kind, how):
    results, (progress, weights) = crew[0](kind + how), alone()
    for found in results:
        assert found["tokens"] == progress.tokens
        for entry, expected in zip(found["history"], progress.history, strict=True):
            assert losses_of(entry) == pytest.approx(losses_of(expected), rel=1e-5)
            assert entry.get("dev") == expected.get("dev")
        for name, weight in weights.items():
            torch.testing.assert_close(found["weights"][name], weight, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_is_the_whole_run_bit_for_bit(crew, kind):
    wholes, others = crew[0](kind), crew[0](f"{kind}, interrupted")
    for whole, other in zip(wholes, others, strict=True):
        assert untimed(whole["history"]) == untimed(other["history"])
        assert all(torch.equal(weight, other["weights"][name]) for name, weight in whole["weights"].items())


@pytest.mark.parametrize("kind", KINDS)
def test_all_leave_a_step_after_one_wishes_it_and_go_on_bit_for_bit(crew, kind):
    wholes, others = crew[0](kind), crew[0](f"{kind}, moved")
    for whole, other in zip(wholes, others, strict=True):
        assert other["left"] == [3, 9, 12]
        assert all(torch.equal(weight, other["weights"][name]) for name, weight in whole["weights"].items())
    assert untimed(wholes[0]["history"]) == untimed(others[0]["history"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_after_an_evaluation_holds_the_moments_and_means_of_all_parameters(crew, kind):
    results, folder = crew
    tensors = read_checkpoint(f"{folder}/{kind}-0").tensors["optimizer.safetensors"]
    entries = ("exp_avg", "exp_avg_sq", "step", MEAN)
    assert tensors.keys() == {f"{name}.{entry}" for name in results(kind)[0]["parameters"] for entry in entries}


@pytest.mark.parametrize("kind", KINDS)
def test_all_workers_have_the_same_weights_and_history(crew, kind):
    first, *others = crew[0](kind)
    for other in others:
        assert [entry.get("dev") for entry in first["history"]] == [entry.get("dev") for entry in other["history"]]
        assert all(torch.equal(weight, other["weights"][name]) for name, weight in first["weights"].items())
