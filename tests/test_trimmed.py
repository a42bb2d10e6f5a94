"""A smaller encoder cut from a pretrained one: what it reads and says, against transformers on the whole one."""

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import STAGE_TWO, small_flow, small_recipe
from tokenizers import Tokenizer, models
from tracked import empty_store
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    MPNetConfig,
    MPNetModel,
    MPNetTokenizer,
    PreTrainedTokenizerFast,
)

from tlm_ray import storage
from tlm_ray.runs.cli.options import Data, OneTask, Place
from tlm_ray.runs.cli.recipe_options import EncoderSize
from tlm_ray.runs.flow.students import Teaching
from tlm_ray.runs.preflight import check_starts
from tlm_ray.runs.recipes.resizing import resized
from tlm_ray.runs.stages.making import Execution, make
from tlm_ray.training.encoders.sizes import counted_parameters
from tlm_ray.training.encoders.starts import Pretrained, Trimmed
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Labels, Mlm, SoftTokens
from tlm_ray.training.planned_flops import step_flops
from tlm_ray.training.tokens.tokenizer import train_wordpiece
from tlm_ray.training.tokens.trimming import trim_tokenizer

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
KEPT = 70  # pieces


@pytest.fixture(scope="module")
def texts(data) -> list[str]:
    return pq.read_table(data / "tasks" / "topics" / "train.parquet")["text"].to_pylist()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, texts) -> str:
    """A small BERT of three random layers, whose special tokens come late in its vocabulary, as BERT's do."""
    folder = tmp_path_factory.mktemp("encoder")
    first = train_wordpiece(texts, vocabulary=150)
    pieces = sorted(first.get_vocab(), key=first.get_vocab().__getitem__)
    strange = ["\u3042", "##\u3042"]  # characters that no text has
    order = [*(f"[unused{number}]" for number in range(9)), *pieces[:5], *strange, *pieces[5:]]
    BertTokenizer(vocab={piece: number for number, piece in enumerate(order)}).save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
    size |= {"pad_token_id": order.index("[PAD]")}
    config = BertConfig(vocab_size=len(order) + 3, max_position_embeddings=128, initializer_range=0.3, **size)
    model = BertForMaskedLM(config)
    torch.nn.init.uniform_(model.cls.predictions.bias)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def whole(encoder):
    return AutoTokenizer.from_pretrained(encoder)


def test_the_most_frequent_pieces_are_kept_and_other_words_fall_apart_into_them(whole, texts):
    small = trim_tokenizer(whole, texts, vocabulary=KEPT)
    before, after = whole.get_vocab(), small.get_vocab()
    assert len(small) == KEPT and sorted(after.values()) == list(range(KEPT)) and after.keys() < before.keys()
    assert sorted(after, key=after.__getitem__) == sorted(after, key=before.__getitem__), "in their order"
    assert not any("unused" in piece or "\u3042" in piece for piece in after)
    counts = dict.fromkeys(before, 0)
    for text in texts:
        for piece in whole.tokenize(text):
            counts[piece] += 1
    words = {piece: counts[piece] for piece in before if len(piece.removeprefix("##")) > 1 and "[" not in piece}
    left, gone = ([count for piece, count in words.items() if (piece in after) == wanted] for wanted in (True, False))
    assert left and gone and min(left) >= max(gone)
    for text in texts:
        tokens = small(text)["input_ids"]
        assert tokens[0] == small.cls_token_id and tokens[-1] == small.sep_token_id and small.unk_token_id not in tokens
        assert small.decode(tokens, skip_special_tokens=True) == whole.decode(
            whole(text)["input_ids"], skip_special_tokens=True
        )
    pair = small("a", "a")
    assert pair["token_type_ids"] == [0, 0, 0, 1, 1] and pair["input_ids"][2] == small.sep_token_id


def test_characters_of_the_texts_are_kept_however_small_the_vocabulary(whole, texts):
    small = trim_tokenizer(whole, texts, vocabulary=1)
    assert len(small) < KEPT and all(len(piece.removeprefix("##")) == 1 or "[" in piece for piece in small.get_vocab())
    for text in texts:
        assert small.decode(small(text)["input_ids"], skip_special_tokens=True) == whole.decode(
            whole(text)["input_ids"], skip_special_tokens=True
        )


def test_characters_that_continue_no_word_are_left_out():
    han, accented = "\u4e2d", "\u00e9"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", han, f"##{han}", accented, f"##{accented}", f"{accented}x"]
    tokenizer = BertTokenizer(vocab={piece: n for n, piece in enumerate(words)}, strip_accents=False)
    kept = trim_tokenizer(tokenizer, [f"{han}{han} {accented}x"], vocabulary=1).get_vocab()
    assert kept.keys() == {*words[:5], han, accented}


def test_an_encoder_with_another_frame_of_rows_is_trimmed(texts, tmp_path):
    special = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"]
    pieces = [*special, *(piece for piece in train_wordpiece(texts, vocabulary=150).get_vocab() if "[" not in piece)]
    MPNetTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}).save_pretrained(tmp_path)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    MPNetModel(MPNetConfig(vocab_size=len(pieces), max_position_embeddings=66, **size)).save_pretrained(tmp_path)
    whole = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer = trim_tokenizer(whole, texts, vocabulary=KEPT)
    row = tokenizer(texts[0])["input_ids"]
    assert (row[0], row[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    model = JointModel.of(Trimmed(str(tmp_path), 1, KEPT), (Labels(),), tokenizer=tokenizer, labels=("a", "b"), seed=0)
    of_whole = MPNetModel.from_pretrained(tmp_path).eval()
    of_whole.encoder.layer = of_whole.encoder.layer[:1]
    numbers = whole.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(row))
    with torch.inference_mode():
        expected = of_whole(torch.tensor([numbers])).last_hidden_state
        found = model.eval().encoder(torch.tensor([row])).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_tokenizer_of_no_class_of_its_own_begins_and_ends_rows_with_its_tokens(whole, texts):
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    generic = PreTrainedTokenizerFast(tokenizer_object=whole.backend_tokenizer, **special)
    small = trim_tokenizer(generic, texts, vocabulary=KEPT)
    pieces = small.convert_ids_to_tokens(small(texts[0])["input_ids"])
    assert (pieces[0], pieces[-1]) == ("[CLS]", "[SEP]") and type(small) is type(generic)


def test_operations_are_planned_for_the_smaller_encoder(encoder, whole, texts, tmp_path):
    start, tokenizer = Trimmed(encoder, 2, KEPT), trim_tokenizer(whole, texts, vocabulary=KEPT)
    tokenizer.save_pretrained(tmp_path)
    model = JointModel.of(start, (Mlm(),), tokenizer=tokenizer, labels=("a", "b"), seed=0)
    model.export(Mlm(), tmp_path, precision="fp32")
    assert planned(start, encoder) == planned(Pretrained(str(tmp_path)), str(tmp_path))


def planned(start, tokenizer: str) -> float:
    """Return the planned operations of a step of stage one."""
    settings = small_recipe(start=start, tokenizer=tokenizer).settings_one(0)
    return step_flops(settings, vocabulary=9, row_tokens=(20, 20), longest=(48, 48))


def test_a_trimmed_tokenizer_opens_again_and_is_the_same_each_time(whole, texts, tmp_path):
    small = trim_tokenizer(whole, texts, vocabulary=KEPT)
    small.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_vocab() == small.get_vocab() == trim_tokenizer(whole, texts, vocabulary=KEPT).get_vocab()
    assert type(again) is type(whole) and again("the sea") == small("the sea")
    assert trim_tokenizer(whole, texts, vocabulary=len(whole)) is whole, "nothing to trim"


def test_what_cannot_be_trimmed_is_refused(whole, texts, encoder):
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), name_or_path="x")
    with pytest.raises(ValueError, match="tokenizer 'x': is of the kind BPE; only WordPiece, such as BERT's"):
        trim_tokenizer(other, texts, vocabulary=20)
    with pytest.raises(ValueError, match="start Trimmed: layers 0: must be 1 or more"):
        Trimmed(encoder, 0)
    with pytest.raises(ValueError, match="tokenizer 'trained': the start has pieces of its own; give tokenizer="):
        small_recipe(start=Trimmed(encoder, 1))
    for start, teacher in ((Trimmed(encoder, 1), Pretrained(encoder)), (Pretrained(encoder), Trimmed(encoder, 1))):
        with pytest.raises(ValueError, match="teacher: a Trimmed or Extended encoder has tokens of its own; give"):
            small_recipe(start=start, tokenizer=encoder, teacher=teacher, objectives=(Mlm(), SoftTokens()))
    with pytest.raises(ValueError, match=r"layers 2: are those of a pretrained encoder; give start=Pretrained"):
        resized(small_recipe(), layers=2)
    with pytest.raises(ValueError, match="start Trimmed: its tokenizer has '##z', which the encoder's has not"):
        tokenizer = train_wordpiece(["zzz zzz zzz"], vocabulary=60)
        with Trimmed(encoder, 1).weights(tokenizer=tokenizer, labels=("a", "b"), seed=0):
            pass


@pytest.mark.usefixtures("alone")
def test_layers_that_the_encoder_has_not_are_refused_before_any_work(encoder):
    recipe = small_recipe(start=Trimmed(encoder, 4, KEPT), tokenizer=encoder, stage_one=None, k=0)
    with pytest.raises(ValueError, match="start with 4 layers: these are more than the encoder's 3; give fewer"):
        check_starts([recipe], Execution(root="r"))
    check_starts([replace(recipe, start=Trimmed(encoder, 3, KEPT))], Execution(root="r"))


def test_its_size_is_known_from_the_configuration(encoder, whole, texts):
    start = Trimmed(encoder, 2, KEPT)
    tokenizer = trim_tokenizer(whole, texts, vocabulary=KEPT)
    model = JointModel.of(start, (Labels(),), tokenizer=tokenizer, labels=("a", "b"), seed=0)
    pooler = 32 * 32 + 32  # part of the encoder in transformers, of the head here
    assert counted_parameters(start, vocabulary=9) == model.encoder.num_parameters() + pooler


@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(layers=st.integers(1, 3), row=st.lists(st.integers(5, KEPT - 1), min_size=1, max_size=20))
def test_it_says_what_the_kept_layers_say_of_the_same_pieces(encoder, whole, texts, layers, row):
    tokenizer = trim_tokenizer(whole, texts, vocabulary=KEPT)
    numbers = [tokenizer.cls_token_id, *row, tokenizer.sep_token_id]
    pieces = tokenizer.convert_ids_to_tokens(numbers)
    model = JointModel.of(Trimmed(encoder, layers, KEPT), (Mlm(),), tokenizer=tokenizer, labels=("a", "b"), seed=0)
    of_whole = BertForMaskedLM.from_pretrained(encoder, attn_implementation="eager").eval()
    kept = {1: [0], 2: [0, 1], 3: [0, 1, 2]}[layers]
    of_whole.bert.encoder.layer = torch.nn.ModuleList(of_whole.bert.encoder.layer[number] for number in kept)
    with torch.inference_mode():
        expected = of_whole(torch.tensor([whole.convert_tokens_to_ids(pieces)])).logits[0]
        expected = expected[:, whole.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(range(KEPT)))]
        hidden = model.eval().encoder(torch.tensor([numbers])).last_hidden_state
        head = model.heads["mlm"]
        found = torch.nn.functional.linear(head(hidden)[0], head.last.weight, head.last.bias)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (model.config.vocab_size, model.config.num_hidden_layers) == (KEPT, layers)
    assert model.config.pad_token_id == tokenizer.pad_token_id == model.encoder.get_input_embeddings().padding_idx


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("stage_one", [None, small_recipe().stage_one])
def test_a_trained_one_opens_in_transformers(data, tmp_path, encoder, stage_one):
    flow, start = small_flow(data, tmp_path), Trimmed(encoder, 2, KEPT)
    k = 0 if stage_one is None else 5
    recipe = small_recipe(start=start, tokenizer=encoder, stage_one=stage_one, k=k, stage_two=STAGE_TWO)
    stages = flow.stages(recipe, "topics", 0)
    make([stages.metrics], flow.execution.root)
    folder = storage.join(stages.stage_two.folder(flow.execution.root), "model")
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert (model.config.num_hidden_layers, model.config.vocab_size, len(tokenizer)) == (2, KEPT, KEPT)
    assert model(**tokenizer("the sea is calm", return_tensors="pt")).logits.shape == (1, 3)
    assert set(stages.tokenizer.inputs) == {"task"}, "rows of other general text have the same pieces"
    plain = flow.stages(replace(recipe, start=Pretrained(encoder)), "topics", 0)
    assert plain.tokenizer.fingerprint != stages.tokenizer.fingerprint
    assert plain.stage_two.fingerprint != stages.stage_two.fingerprint


def test_students_of_a_pretrained_row_can_start_from_its_layers(data, tmp_path, encoder):
    table = runpy.run_path(str(EXPERIMENTS / "main_table.py"))["MainTable"]
    options = {
        "data": Data(tasks=["topics"], task_root=str(data / "tasks"), corpus=[str(data / "corpus")]),
        "place": Place(root=str(tmp_path)),
        "baseline": [encoder],
        "teacher_seeds": 2,
        "student_layers": [0, 2],
    }
    flow = small_flow(data, tmp_path)
    made = table(student_of=[encoder], seeds=3, **options)
    students = [one for one in made.trainings(flow) if one.teaching]
    teacher = made.recipes("topics", flow)[encoder]
    assert [one.seed for one in students] == [0, 1, 2, 0, 1, 2]
    scratch, cut = students[:3], students[3:]
    assert {one.row for one in scratch} == {f"{encoder}, student of 2"}
    assert {one.recipe for one in scratch} == {made.recipe("topics", flow, made.mixture)}
    assert {one.teaching for one in scratch} == {Teaching.by_others(seeds=(0, 1), recipe=teacher)}
    assert {one.row for one in cut} == {f"{encoder}, student of 2 with 2 of its layers"}
    assert {one.recipe for one in cut} == {replace(teacher, start=Trimmed(encoder, 2))}
    assert {one.teaching for one in cut} == {Teaching(seeds=(0, 1), recipe=teacher)}
    with pytest.raises(ValueError, match="--student-layers 2: applies to rows of a whole pretrained encoder"):
        table(student_of=["TLM, BM25 text"], seeds=3, **options).trainings(flow)


def test_the_frontier_has_rows_of_fewer_layers(data, tmp_path, encoder):
    frontier = runpy.run_path(str(EXPERIMENTS / "frontier.py"))["Frontier"]
    task = Data(tasks=["topics"], task_root=str(data / "tasks"), corpus=[str(data / "corpus")])
    made = frontier(data=task, place=Place(root=str(tmp_path)), start=encoder, layers=[1, 2], before=["plain"])
    found, name = made.recipes("topics", small_flow(data, tmp_path)), Path(encoder).name
    whole = found[f"{name} fine-tuned"]
    for layers in (1, 2):
        assert found[f"{name}, {layers} of its layers"] == replace(whole, start=Trimmed(encoder, layers))


def test_all_rows_of_adaptations_can_have_fewer_layers(data, tmp_path, encoder):
    adapted = runpy.run_path(str(EXPERIMENTS / "adapted.py"))["Adapted"]
    options = {"data": Data(tasks=["topics"], task_root=str(data / "tasks"), corpus=[str(data / "corpus")])}
    options |= {"place": Place(root=str(tmp_path)), "start": encoder}
    flow = small_flow(data, tmp_path)
    rows, small = (adapted(size=EncoderSize(layers=layers), **options).recipes("topics", flow) for layers in (None, 2))
    assert list(rows) == list(small)
    for row in ("fine-tuned", "random text", "BM25 text"):  # the steps of others follow from operations
        assert small[row] == replace(rows[row], start=Trimmed(encoder, 2))
    assert {one.start for one in small.values()} == {Trimmed(encoder, 2)}


def test_one_command_trains_a_student_of_fewer_layers(data, tmp_path, encoder):
    train = runpy.run_path(str(EXPERIMENTS / "train.py"))
    options = {"data": OneTask(tasks=["topics"], task_root=str(data / "tasks")), "start": encoder}
    flow = small_flow(data, tmp_path)
    made = train["trainings"](train["Train"](student=True, student_layers=2, before="plain", **options), flow)
    *teachers, student = [one for one in made if one.row in ("train", "student")]
    assert {one.recipe.start for one in teachers} == {Pretrained(encoder)}
    assert student.recipe == replace(teachers[0].recipe, start=Trimmed(encoder, 2))
    assert student.teaching == Teaching(seeds=(0, 1), recipe=teachers[0].recipe)
    alone = train["trainings"](train["Train"](size=EncoderSize(layers=1), before="plain", **options), flow)
    assert {one.recipe.start for one in alone if one.row == "train"} == {Trimmed(encoder, 1)}
    with pytest.raises(ValueError, match="--layers 1: teachers of --student-layers keep all layers; give one of them"):
        train["Train"](size=EncoderSize(layers=1), student=True, student_layers=2, **options)


@pytest.mark.slow
def test_one_command_keeps_an_encoder_and_a_linear_model(data, tmp_path, encoder, called):
    own = ["--tasks", "topics", "--task-root", f"{data}/tasks", "--scale", "tiny", "--steps-two", "300"]
    own += ["--start", encoder, "--before", "plain", "--part", "0.4", "--seeds", "1"]
    place = ["--root", f"{tmp_path}/tlm", "--tracking-uri", empty_store(tmp_path), "--model", f"{tmp_path}/both"]
    said = called("experiments/train.py", *own, *place, "--ensemble")
    assert "stage two: 120 steps instead of 300" in said
    assert re.search(r"^ *with linear model +[\d.]+ +[\d.]+", said, re.M)
    assert {folder.name for folder in (tmp_path / "both").iterdir()} == {"seed-0", "linear"}
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "both" / "seed-0")


@pytest.mark.slow
def test_one_command_trains_teachers_and_keeps_their_small_student(data, tmp_path, encoder, called, capsys):
    options = ["--tasks", "topics", "--task-root", f"{data}/tasks", "--start", encoder, "--before", "plain"]
    options += ["--root", f"{tmp_path}/tlm", "--tracking-uri", empty_store(tmp_path), "--steps-two", "6"]
    options += ["--scale", "tiny", "--seeds", "2", "--model", f"{tmp_path}/model"]
    said = called("experiments/train.py", *options, "--student", "--student-layers", "1")
    assert re.search(r"^ *student ", said, re.M)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    trained = [json.loads(path.read_text()) for path in (tmp_path / "tlm" / "stage_two").glob("*/record.json")]
    assert model.config.num_hidden_layers == 1 and len(trained) == 3
    sizes = {one["facts"]["parameters"]: one["facts"]["steps"] for one in trained}
    assert sizes[min(sizes)] == 2 * sizes[max(sizes)] == 12, "the smaller one learns twice as long"
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    both = ["--ensemble", "--model", f"{tmp_path}/both"]
    said = called("experiments/train.py", *options, "--student", "--student-layers", "1", *both)
    assert re.search(r"^ *student with linear model +[\d.]+ +[\d.]+", said, re.M)
    assert {folder.name for folder in (tmp_path / "both").iterdir()} == {"seed-0", "linear"}, "the student, and no seed"
    kept = AutoModelForSequenceClassification.from_pretrained(tmp_path / "both" / "seed-0")
    assert all(torch.equal(*pair) for pair in zip(kept.parameters(), model.parameters(), strict=True))
    (tmp_path / "both" / "seed-1").mkdir()
    (tmp_path / "both" / "seed-1" / "config.json").write_text("a seed's")
    with pytest.raises(SystemExit):
        called("experiments/train.py", *options, "--student", "--student-layers", "1", *both)
    assert "holds 'seed-1/config.json' besides seed-0, linear" in " ".join(capsys.readouterr().out.split())
