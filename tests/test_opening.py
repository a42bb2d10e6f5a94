"""Opening models: only transformers' own classes, no foreign code, and the revision that was named."""

import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel
from transformers.utils import logging

from tlm_ray.storage.opening import open_pretrained, open_settings


class Auto:
    """Tells how it was asked."""

    @staticmethod
    def from_pretrained(name, **options):
        return name, options


@pytest.mark.parametrize(
    ("source", "name", "revision"),
    [
        ("google-bert/bert-base-uncased", "google-bert/bert-base-uncased", None),
        ("google-bert/bert-base-uncased@86b5e093", "google-bert/bert-base-uncased", "86b5e093"),
        ("gpt2@refs/pr/1", "gpt2", "refs/pr/1"),
        ("/data/my@model", "/data/my@model", None),
        ("./my@model", "./my@model", None),
        ("s3://key@bucket/model", "s3://key@bucket/model", None),
    ],
)
def test_a_hub_name_may_say_its_revision(source, name, revision):
    found = {} if revision is None else {"revision": revision}
    assert open_settings(Auto, source, a=1) == (name, {"trust_remote_code": False, "a": 1} | found)
    assert open_pretrained(Auto, source) == (
        name,
        {"trust_remote_code": False, "use_safetensors": True, "dtype": "float32"} | found,
    )


def test_weights_that_are_stored_in_half_precision_are_opened_in_fp32(tmp_path):
    model = BertModel(BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1))
    model.half().save_pretrained(tmp_path)
    assert {each.dtype for each in open_pretrained(AutoModel, tmp_path).parameters()} == {torch.float32}


def test_a_model_is_opened_without_a_bar_and_bars_stay_as_they_were(tmp_path, capfd):
    BertModel(BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)).save_pretrained(
        tmp_path
    )
    capfd.readouterr()
    before = logging.is_progress_bar_enabled()
    for shown, switch in ((True, logging.enable_progress_bar), (False, logging.disable_progress_bar)):
        switch()
        open_pretrained(AutoModel, tmp_path)
        assert capfd.readouterr().err == "" and logging.is_progress_bar_enabled() is shown
    (logging.enable_progress_bar if before else logging.disable_progress_bar)()
