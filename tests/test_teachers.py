"""What a student may learn from in stage one: a teacher of its own tokens, with a trained head for soft ones."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small import small_recipe
from trainings import GEOMETRY, LABELS, stage_one
from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerBase

from tlm_ray.compute import Compute
from tlm_ray.training.encoders.starts import Scratch
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Cosine, Generator, Mlm, Prediction, Rtd, SoftTokens
from tlm_ray.training.settings import Job
from tlm_ray.training.stage import _new_model
from tlm_ray.training.tokens.tokenizer import train_wordpiece

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TRIPLE = (Mlm(), SoftTokens(), Cosine())


def tokenizer_of(word: str, size: int = 120) -> PreTrainedTokenizerBase:
    return train_wordpiece([f"{word}{number} the {word} of {word}" for number in range(60)] * 20, vocabulary=size)


def saved(folder: Path, tokenizer: PreTrainedTokenizerBase, kind: Any = BertForMaskedLM, *, further: int = 0) -> str:
    """Save an encoder of random weights with its tokenizer; further: rows of its table beyond the tokenizer's."""
    kind(BertConfig(vocab_size=len(tokenizer) + further, **SIZE)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def student_of(teacher: str, tokenizer: PreTrainedTokenizerBase, objectives: Any = TRIPLE) -> JointModel:
    settings = stage_one(geometry=replace(GEOMETRY, family="bert"), objectives=objectives, teacher=teacher)
    job = Job(folder="", blocks="", settings=settings, compute=Compute())
    return _new_model(job, (), tokenizer=tokenizer, labels=LABELS)


@pytest.mark.parametrize("size", [90, 120])
def test_a_teacher_of_other_tokens_is_refused_whatever_their_number(size, tmp_path):
    other, own = tokenizer_of("gene", size), tokenizer_of("wave")
    with pytest.raises(ValueError, match=r"have the same number among the student's .* give the student the teacher's"):
        student_of(saved(tmp_path, other), own)


def test_a_teacher_with_a_longer_table_than_its_tokenizer_teaches_the_tokens_there_are(tmp_path):
    own = tokenizer_of("wave")
    student = student_of(saved(tmp_path, own, further=8), own)
    inputs = {"input_ids": torch.tensor([[2, 9, 11, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}
    places = {"soft": Prediction(inputs["input_ids"][0], torch.arange(4))}
    loss = student(inputs, places)["soft"]
    assert float(loss.detach()) > 0
    loss.backward()


def test_soft_tokens_need_a_head_that_is_trained(tmp_path):
    own = tokenizer_of("wave")
    headless = saved(tmp_path, own, BertModel)
    with pytest.raises(ValueError, match=r"has no trained head for masked tokens.* leave SoftTokens out, or give"):
        student_of(headless, own)
    assert student_of(headless, own, (Mlm(), Cosine())).teacher is not None


def test_soft_tokens_need_a_recipe_that_exports_its_head_for_masked_tokens():
    electra = Scratch(replace(GEOMETRY, family="electra", positions=64))
    teacher = small_recipe(start=electra, objectives=(Generator(), Rtd(), Mlm()), exported="rtd")
    with pytest.raises(ValueError, match="exports rtd, and SoftTokens learns from mlm; give exported='mlm'"):
        small_recipe(start=electra, objectives=TRIPLE, teacher=teacher)
    assert small_recipe(start=electra, objectives=TRIPLE, teacher=replace(teacher, exported="mlm")).teacher
