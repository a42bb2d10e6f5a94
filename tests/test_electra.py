"""ELECTRA's objectives: against transformers' own generator and discriminator, however a step is computed."""

from dataclasses import replace

import pytest
import torch
from trainings import (
    GEOMETRY,
    LABELS,
    VOCABULARY,
    make_model,
    one_thread,  # noqa: F401 - a fixture
    run_whole,
    stage_one,
)
from transformers import AutoModelForSequenceClassification, ElectraForMaskedLM, ElectraForPreTraining
from ways import batch_of

from tlm_ray.training.encoders.families import Electra
from tlm_ray.training.model.inputs import to_device
from tlm_ray.training.model.joint import Features
from tlm_ray.training.objectives import Generator, Mlm, Rtd

# weights far from 0, so that a part that is left out would show
GEOMETRY_OF_IT = replace(GEOMETRY, family="electra", layers=2, init_std=0.3)


def settings(**changes):
    return stage_one(geometry=GEOMETRY_OF_IT, objectives=(Generator(share=0.5), Rtd()), exported="rtd", **changes)


@pytest.fixture
def model():
    return make_model(settings()).on("cpu").eval()


def test_losses_are_those_of_transformers(model, tmp_path):
    batch = batch_of(settings(), "task")
    inputs, predictions = to_device(batch, "cpu")
    with torch.no_grad():
        sums = model(inputs, predictions)
    head, table = model.heads["generator"], model.encoder.get_input_embeddings().weight
    reference = ElectraForMaskedLM(head.encoder.config).eval()
    reference.electra.load_state_dict(head.encoder.state_dict(), strict=False)
    reference.generator_predictions.load_state_dict(head.transform.state_dict())
    with torch.no_grad():
        reference.electra.embeddings.word_embeddings.weight.copy_(table)
        reference.generator_lm_head.weight.copy_(table)
        reference.generator_lm_head.bias.copy_(head.bias)
    found = predictions["generator"]
    wanted = torch.full(inputs["input_ids"].shape, -100).flatten()
    wanted[found.places] = found.values[:, 0].long()
    loss = reference(**inputs, labels=wanted.view_as(inputs["input_ids"])).loss
    torch.testing.assert_close(sums["generator"] / len(found.places), loss, rtol=1e-5, atol=0)

    model.export(Rtd(), tmp_path, precision="fp32")
    discriminator = ElectraForPreTraining.from_pretrained(tmp_path).eval()
    features = Features(model, inputs)
    with torch.no_grad():
        Generator().loss(head, features, found)
    seen, original = features.inputs["input_ids"], torch.from_numpy(batch.targets["rtd"].values)
    replaced = (seen != original).long()
    assert 0 < replaced.sum() <= len(found.places), "of the chosen tokens alone"
    rtd = discriminator(seen, attention_mask=inputs["attention_mask"], labels=replaced).loss
    torch.testing.assert_close(sums["rtd"] / int(batch.attention.sum()), rtd, rtol=1e-5, atol=0)


def test_the_generator_draws_from_its_distribution(model):
    from tlm_ray.training.objectives.rtd import _drawn

    torch.manual_seed(0)
    states, table, bias = torch.randn(1, 8), torch.randn(20, 8), torch.randn(20)
    draws = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    drawn = _drawn(states.expand(len(draws), -1), table, bias, draws)
    share = torch.bincount(drawn, minlength=20) / len(draws)
    torch.testing.assert_close(share, (states @ table.T + bias).softmax(-1)[0], rtol=0, atol=2e-5)


def test_the_discriminator_is_what_stage_two_starts_with(tmp_path):
    own = settings()
    trainer = run_whole(own)
    assert trainer.progress.flops > 0 and {"general_generator", "general_rtd"} <= trainer.progress.history[0].keys()
    for name, objective in own.exports.items():
        trainer.model.export(objective, tmp_path / name, precision="fp32")
    assert sorted(own.exports) == ["model", "task_model"] and isinstance(own.exports["model"], Rtd)
    _, loading = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "model", num_labels=len(LABELS), output_loading_info=True
    )
    assert all(name.startswith("classifier.") for name in loading["missing_keys"])
    for name, parameter in ElectraForPreTraining.from_pretrained(tmp_path / "model").electra.named_parameters():
        torch.testing.assert_close(parameter, dict(trainer.model.encoder.named_parameters())[name], rtol=0, atol=0)


def test_parameters_are_counted_as_transformers_does():
    from tlm_ray.training.encoders.starts import scratch_config

    config = scratch_config(GEOMETRY_OF_IT, vocabulary=VOCABULARY.size, pad_id=0, labels=LABELS)
    assert GEOMETRY_OF_IT.parameters(vocabulary=VOCABULARY.size) == ElectraForMaskedLM(config).num_parameters()
    assert isinstance(GEOMETRY_OF_IT.of_family, Electra)


def test_what_cannot_be_is_refused_by_name():
    bert = stage_one(objectives=(Generator(), Rtd()))
    with pytest.raises(ValueError, match="architecture 'bert': replaced tokens are detected by ELECTRA alone; give"):
        make_model(bert)
    alone = stage_one(geometry=GEOMETRY_OF_IT, objectives=(Rtd(),))
    with pytest.raises(ValueError, match=r"objective rtd: needs a generator before it; give objectives=\(Generator"):
        batch_of(alone, "task")
    with pytest.raises(ValueError, match="generator share 0: must be above 0 and at most 1"):
        Generator(share=0)
    late = stage_one(geometry=GEOMETRY_OF_IT, objectives=(Mlm(), Generator(), Rtd()))
    with pytest.raises(RuntimeError, match="the encoder has read its tokens; an objective that replaces them comes"):
        make_model(late)(*to_device(batch_of(late, "task"), "cpu"))
