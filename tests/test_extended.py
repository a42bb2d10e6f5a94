"""An encoder with further words: what its tokenizer splits and what its words begin with, against transformers."""

import json
import re
import runpy
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch
from small import STAGE_TWO, small_flow, small_recipe
from test_adapted import saved, words  # noqa: F401 - a fixture
from test_trimmed import EXPERIMENTS, encoder, planned, texts, whole  # noqa: F401 - fixtures
from tokenizers import Tokenizer, models
from tracked import empty_store
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    pipeline,
)

from tlm_ray.runs.cli.options import Data, Place
from tlm_ray.runs.cli.recipe_options import EncoderSize
from tlm_ray.runs.preflight import check_starts
from tlm_ray.runs.recipes.paper import baseline
from tlm_ray.runs.recipes.resizing import resized
from tlm_ray.runs.stages.making import Execution, make
from tlm_ray.training.encoders.sizes import counted_parameters
from tlm_ray.training.encoders.starts import Extended, Pretrained, Trimmed
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Labels, Mlm
from tlm_ray.training.tokens.extending import extend_tokenizer

NEW = 20  # words


def test_the_words_are_those_that_save_most_tokens_and_the_pieces_stay(whole, texts):  # noqa: F811
    extended = extend_tokenizer(whole, texts, words=NEW)
    counts = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower()))
    saves = {word: count * (len(whole.tokenize(word)) - 1) for word, count in counts.items()}
    expected = sorted((word for word in saves if saves[word]), key=lambda word: (-saves[word], word))[:NEW]
    new = set(extended.get_vocab()) - set(whole.get_vocab())
    assert len(new) == NEW and new == set(expected)
    assert whole.get_vocab().items() <= extended.get_vocab().items()
    assert [extended.tokenize(word) for word in expected] == [[word] for word in expected]
    assert [extended.convert_tokens_to_ids(word) for word in expected] == list(range(len(whole), len(whole) + NEW))
    before, after = (sum(map(len, tokenizer(texts)["input_ids"])) for tokenizer in (whole, extended))
    assert after < before
    spelled = ["".join(extended.tokenize(text)).replace("##", "") for text in texts]
    assert spelled == ["".join(whole.tokenize(text)).replace("##", "") for text in texts]


def test_a_tokenizer_gets_no_more_words_than_it_splits_and_opens_again(whole, texts, tmp_path):  # noqa: F811
    every = extend_tokenizer(whole, texts, words=10**6)
    assert all(len(every.tokenize(word)) == 1 for text in texts for word in re.findall(r"\w+", text.lower()))
    assert len(extend_tokenizer(every, texts, words=5)) == len(every), "nothing to add"
    every.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_vocab() == every.get_vocab()
    assert type(again) is type(whole) and again(texts[0]) == every(texts[0])
    assert again.get_vocab().keys() >= {"[PAD]", "[MASK]"} and again.mask_token_id == whole.mask_token_id


def test_a_word_of_unknown_characters_stays_unknown(whole):  # noqa: F811
    odd = "\u0416\u0416\u0416"
    assert "[UNK]" in whole.tokenize(odd)
    assert len(extend_tokenizer(whole, [odd] * 9, words=5)) == len(whole)


def test_a_token_that_was_added_to_the_vocabulary_keeps_its_number(encoder):  # noqa: F811
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    tokenizer.add_tokens(["seasea"])
    assert len(tokenizer.backend_tokenizer.model.tokenize("seasea")) > 1, "the model of pieces knows no added token"
    extended = extend_tokenizer(tokenizer, ["seasea"] * 9, words=5)
    assert extended.get_vocab() == tokenizer.get_vocab() and len(extended) == len(tokenizer)


def test_a_word_begins_as_the_mean_of_its_pieces_and_all_else_is_as_before(encoder, whole, texts):  # noqa: F811
    tokenizer = extend_tokenizer(whole, texts, words=NEW)
    model = JointModel.of(Extended(encoder, NEW), (Mlm(),), tokenizer=tokenizer, labels=("a", "b"), seed=0).eval()
    of_whole = BertForMaskedLM.from_pretrained(encoder, attn_implementation="eager").eval()
    own, head = of_whole.get_input_embeddings().weight, model.heads["mlm"]
    table = model.encoder.get_input_embeddings().weight
    assert len(table) == len(tokenizer) == model.config.vocab_size
    new = sorted(set(tokenizer.get_vocab()) - set(whole.get_vocab()), key=tokenizer.get_vocab().__getitem__)
    pieces = [whole(word, add_special_tokens=False)["input_ids"] for word in new]
    means = torch.stack([own[numbers].mean(dim=0) for numbers in pieces])
    torch.testing.assert_close(table[len(whole) :], means)
    row = torch.tensor([whole(texts[0])["input_ids"]])
    with torch.inference_mode():
        expected = of_whole(row).logits[0]
        found = torch.nn.functional.linear(
            head(model.encoder(row).last_hidden_state)[0], head.last.weight, head.last.bias
        )
    torch.testing.assert_close(found[:, : len(whole)], expected[:, : len(whole)], rtol=1e-4, atol=1e-4)
    for place, numbers in enumerate(pieces):  # a linear head, so the score of a mean is the mean of scores
        column = found[:, len(whole) + place]
        torch.testing.assert_close(column, expected[:, numbers].mean(dim=1), rtol=1e-4, atol=1e-4)


def test_its_size_and_its_operations_are_known_before_the_words(words, tmp_path):  # noqa: F811
    source, longer = saved(tmp_path / "encoder", BertForMaskedLM, words), str(tmp_path / "longer")
    start, own = Extended(source, NEW), AutoTokenizer.from_pretrained(source)
    tokenizer = extend_tokenizer(own, words, words=NEW)
    model = JointModel.of(start, (Mlm(), Labels()), tokenizer=tokenizer, labels=("a", "b"), seed=0)
    pooler = 32 * 32 + 32  # part of the encoder in transformers, of the head here
    assert counted_parameters(start, vocabulary=9) == model.encoder.num_parameters() + pooler
    tokenizer.save_pretrained(longer)
    model.export(Mlm(), longer, precision="fp32")
    assert planned(start, source) == planned(Pretrained(longer), longer)


def test_what_cannot_be_extended_is_refused(whole, texts, encoder):  # noqa: F811
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), name_or_path="x")
    with pytest.raises(ValueError, match="tokenizer 'x': is of the kind BPE; only WordPiece, such as BERT's"):
        extend_tokenizer(other, texts, words=20)
    gaps = Tokenizer(models.WordPiece(vocab={"[UNK]": 0, "a": 7}, unk_token="[UNK]"))
    with pytest.raises(ValueError, match="tokenizer 'y': has 2 pieces with numbers up to 7; number them without gaps"):
        extend_tokenizer(PreTrainedTokenizerFast(tokenizer_object=gaps, name_or_path="y"), texts, words=20)
    with pytest.raises(ValueError, match="start Extended: words 0: must be 1 or more"):
        Extended(encoder, 0)
    with pytest.raises(ValueError, match="new words 5: are those of a pretrained encoder; give start=Pretrained"):
        resized(small_recipe(), new_words=5)
    pretrained = small_recipe(start=Pretrained(encoder), tokenizer=encoder)
    with pytest.raises(ValueError, match="layers 2, new words 5: its pieces are either trimmed or extended"):
        resized(pretrained, layers=2, new_words=5)
    assert resized(pretrained) == pretrained
    stranger = AutoTokenizer.from_pretrained(encoder)
    stranger.add_tokens(["zzz"])
    with pytest.raises(ValueError, match="start Extended: its tokenizer has not the encoder's 'zzz'; extend that one"):
        stranger.save_pretrained(encoder_copy := Path(encoder).parent / "stranger")
        BertForMaskedLM.from_pretrained(encoder).save_pretrained(encoder_copy)
        with Extended(str(encoder_copy), 1).weights(tokenizer=whole, labels=("a", "b"), seed=0):
            pass


@pytest.mark.usefixtures("alone")
def test_an_encoder_of_other_pieces_is_refused_before_any_work(tmp_path, encoder):  # noqa: F811
    BertForMaskedLM.from_pretrained(encoder).save_pretrained(tmp_path)
    tokenizer = Tokenizer(models.BPE(vocab={"[PAD]": 0, "[UNK]": 1, "</s>": 2, "a": 3}, merges=[]))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "</s>", "mask_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(tmp_path)
    start = Extended(str(tmp_path), 5)
    recipe = small_recipe(start=start, tokenizer=str(tmp_path), stage_one=None, k=0)
    with pytest.raises(ValueError, match="is of the kind BPE; only WordPiece"):
        check_starts([recipe], Execution(root="r"))


@pytest.mark.usefixtures("alone")
def test_the_words_are_counted_in_all_that_a_recipe_trains_on(data, tmp_path, encoder):  # noqa: F811
    flow = small_flow(data, tmp_path)
    adapted = small_recipe(start=Pretrained(encoder), tokenizer=encoder, stage_two=STAGE_TWO)
    plain = replace(adapted, stage_one=None, k=0)
    rows = {name: flow.stages(resized(one, new_words=NEW), "topics", 0) for name, one in (("a", adapted), ("p", plain))}
    assert set(rows["a"].tokenizer.inputs) == {"task", "neighbours"} and set(rows["p"].tokenizer.inputs) == {"task"}
    as_before = flow.stages(plain, "topics", 0)
    assert len({one.tokenizer.fingerprint for one in (*rows.values(), as_before)}) == 3
    assert as_before.stage_two.fingerprint != rows["p"].stage_two.fingerprint
    identities = [one.identity for one in (Pretrained(encoder), Extended(encoder, 1), Extended(encoder, 2))]
    assert all(one != other for one, other in combinations(identities, 2))
    make([one.tokenizer for one in rows.values()], flow.execution.root)
    sizes = [one.tokenizer.record(flow.execution.root)["facts"]["vocabulary"] for one in rows.values()]
    assert sizes == [len(AutoTokenizer.from_pretrained(encoder)) + NEW] * 2
    folders = [one.tokenizer.folder(flow.execution.root) for one in rows.values()]
    found = [set(AutoTokenizer.from_pretrained(f"{folder}/tokenizer").get_vocab()) for folder in folders]
    assert found[0] != found[1], "the general text has other words"


def test_an_encoder_that_is_trained_twice_before_has_the_words_from_the_first(data, tmp_path, encoder):  # noqa: F811
    flow = small_flow(data, tmp_path)
    both = resized(baseline(small_recipe(), encoder, "dapt+tapt", train_rows=60), new_words=NEW)
    assert both.after is not None and both.after.start == both.start == Extended(encoder, NEW)
    stages = flow.stages(both, "topics", 0)
    assert stages.tokenizer.parameters["new_words"] == NEW and "neighbours" in stages.tokenizer.inputs


def test_new_words_are_the_teachers_and_fewer_layers_the_students(data, tmp_path, encoder):  # noqa: F811
    table = runpy.run_path(str(EXPERIMENTS / "adapted.py"))["Adapted"](
        data=Data(tasks=["topics"], task_root=str(data / "tasks"), corpus=[str(data / "corpus")]),
        place=Place(root=str(tmp_path)),
        start=encoder,
        size=EncoderSize(new_words=NEW),
        rows=["fine-tuned"],
        student_of=["fine-tuned"],
        student_layers=[2],
        seeds=2,
    )
    students = [one for one in table.trainings(small_flow(data, tmp_path)) if one.teaching]
    assert {one.recipe.start for one in students} == {Trimmed(encoder, 2)}
    assert {one.teaching.recipe.start for one in students} == {Extended(encoder, NEW)}


@pytest.mark.slow
def test_one_command_trains_an_encoder_with_new_words(data, tmp_path, encoder, called):  # noqa: F811
    options = ["--tasks", "topics", "--task-root", f"{data}/tasks", "--corpus", f"{data}/corpus", "--k", "5"]
    options += [
        "--root",
        f"{tmp_path}/tlm",
        "--tracking-uri",
        empty_store(tmp_path),
        "--steps",
        "4",
        "--steps-two",
        "6",
    ]
    options += ["--scale", "tiny", "--seeds", "1", "--model", f"{tmp_path}/model", "--start", encoder]
    called("experiments/train.py", *options, "--before", "adapted", "--new-words", str(NEW))
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    tokenizer, own = (AutoTokenizer.from_pretrained(folder) for folder in (tmp_path / "model", encoder))
    assert model.config.vocab_size == len(tokenizer) == len(own) + NEW
    facts = [json.loads(path.read_text())["facts"] for path in (tmp_path / "tlm").glob("stage_*/*/record.json")]
    assert len(facts) == 2 and all(one["flops_counted"] > 0 for one in facts)
    said = pipeline("text-classification", model=str(tmp_path / "model"))("the sea is calm")
    assert said[0]["label"] in {"sea", "sky", "kitchen"}
