"""Every objective, computed in all ways that must agree, interrupted and resumed, and opened by transformers alone.

Its losses are held against a reference in test_model.py (masked tokens), test_decoder.py, test_pairs.py,
test_electra.py, test_distillation.py and test_t5.py.
"""

import json
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from trainings import (
    GEOMETRY,
    assert_same_run,
    make_model,
    make_trainer,
    one_thread,  # noqa: F401 - a fixture
    run_interrupted,
    run_whole,
    stage_one,
)
from ways import assert_one_gradient

from tlm_ray.training.encoders.decoders import Decoder
from tlm_ray.training.encoders.families import Geometry
from tlm_ray.training.objectives import (
    Clm,
    Cosine,
    Generator,
    Labels,
    LayersOfTeacher,
    Mlm,
    Nsp,
    Objective,
    Rtd,
    SoftTokens,
    Sop,
    Spans,
    TextLabels,
)
from tlm_ray.training.settings import MODEL
from tlm_ray.training.tokens.masking import Masking

# weights far from 0, so that a part that is left out would show
WIDE = replace(GEOMETRY, layers=2, init_std=0.3)
BERT = replace(WIDE, family="bert")


@dataclass(frozen=True)
class System:
    """A stage one of a system of the field."""

    objectives: tuple[Objective, ...]
    geometry: Geometry = BERT
    exported: str = ""
    of_task: frozenset[str] = frozenset()
    """objectives that leave task rows out"""
    taught: bool = False
    labels: Labels = Labels()  # noqa: RUF009 - frozen


SYSTEMS = {
    "BERT": System((Mlm(),)),
    "whole words": System((Mlm(Masking(words=1)),)),
    "n-grams": System((Mlm(Masking(words=3)),)),
    "next sentences": System((Nsp(), Mlm()), exported="mlm", of_task=frozenset({"nsp"})),
    "order of sentences": System((Sop(), Mlm()), exported="mlm", of_task=frozenset({"sop"})),
    "ELECTRA": System((Generator(share=0.5), Rtd()), replace(WIDE, family="electra"), exported="rtd"),
    "GPT-2": System((Clm(),), replace(WIDE, family="gpt2")),
    "DistilBERT": System((Mlm(times=2.0), SoftTokens(), Cosine()), taught=True),
    "DistilBERT, masked alone": System((Mlm(), SoftTokens(masked_only=True)), taught=True),
    "TinyBERT": System((LayersOfTeacher(), Mlm()), exported="mlm", taught=True),
    "T5": System((Spans(),), replace(WIDE, family="t5"), labels=TextLabels()),
}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> str:
    """The folder of a trained model of four layers."""
    folder = tmp_path_factory.mktemp("teacher")
    make_model(stage_one(geometry=replace(BERT, layers=4))).export(Mlm(), folder, precision="fp32")
    return str(folder)


@pytest.fixture
def settings_of(teacher):
    """Return a function that gives the settings of a system's stage one."""

    def make(system: System):
        options = {"exported": system.exported, "teacher": teacher if system.taught else "", "labels": system.labels}
        return stage_one(geometry=system.geometry, objectives=system.objectives, **options)

    return make


@pytest.mark.parametrize("name", SYSTEMS)
def test_one_gradient_padded_packed_in_micro_rows_and_on_three_workers(name, settings_of):
    system = SYSTEMS[name]
    settings = settings_of(system)
    names = {objective.name for objective in system.objectives}
    assert assert_one_gradient(settings, "general").keys() == names
    assert assert_one_gradient(settings, "task").keys() == names - system.of_task | {"labels"}


# the others have the state of one of these
RESUMED = [name for name in SYSTEMS if name not in ("whole words", "n-grams", "DistilBERT, masked alone")]


@pytest.mark.parametrize("name", RESUMED)
def test_it_resumes_to_the_bit(name, settings_of, tmp_path):
    settings = settings_of(SYSTEMS[name])
    whole = run_whole(settings)
    assert_same_run(whole, run_interrupted(tmp_path, [3, 8], lambda: make_trainer(settings)))
    assert whole.progress.flops > 0, "its operations are counted"


OPENED = """
import json, sys, torch, transformers
tokens, found = torch.tensor([json.loads(sys.argv[1])]), []
for folder, opens_as in json.loads(sys.argv[2]):
    model = getattr(transformers, opens_as).from_pretrained(folder).eval()
    also = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        found.append(model(input_ids=tokens, **also).logits[0].tolist())
assert "tlm_ray" not in sys.modules
print(json.dumps(found))
"""


def test_what_is_exported_opens_in_a_process_that_has_transformers_alone(settings_of, tmp_path):
    tokens, folders, expected = [2, 17, 23, 42, 8, 3], [], []
    rows = {"input_ids": torch.tensor([tokens]), "attention_mask": torch.ones(1, len(tokens), dtype=torch.int64)}
    for name, system in SYSTEMS.items():
        settings = settings_of(system)
        model, objective = make_model(settings).on("cpu").eval(), settings.exports[MODEL]
        model.export(objective, tmp_path / name, precision="fp32")
        folders.append((str(tmp_path / name), objective.opens_as))
        with torch.no_grad():
            head, hidden = model.heads[objective.name], model.encode(rows)
            writes = isinstance(head, Decoder)
            logits = head.next_tokens(hidden, None, rows["input_ids"]) if writes else head.logits(hidden, None)
            expected.append(logits[0].squeeze(-1))
    command = [sys.executable, "-c", OPENED, json.dumps(tokens), json.dumps(folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    for name, found, own in zip(SYSTEMS, json.loads(done.stdout), expected, strict=True):
        torch.testing.assert_close(
            torch.tensor(found), own, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}"
        )
