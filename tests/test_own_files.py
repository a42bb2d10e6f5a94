"""Own files as people have them: what they were taken for is said; what cannot be read gets one line with the fix."""

import csv
import hashlib
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tracked import empty_store

from tlm_ray.corpus.general import dialects
from tlm_ray.corpus.general.documents import read_columns
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.corpus.labelled.task_columns import Columns
from tlm_ray.corpus.labelled.task_files import SPLITS
from tlm_ray.corpus.labelled.tasks import Task, read_task

ROWS = [(f"Café no. {i}, “fine”; or\nnot? {i % 3}", ("good", "bad", "so so")[i % 3]) for i in range(60)]
NO_DEV = "no dev and no test file: a tenth of the texts each, drawn by their hashes: 48 train, 6 dev, 6 test rows"


def as_csv(rows=ROWS, header=("text", "label"), **options) -> str:
    sink = io.StringIO(newline="")
    csv.writer(sink, **options).writerows([header, *rows])
    return sink.getvalue()


PLAIN = as_csv()
MESSY = {  # the file's bytes, and what is said of it beside NO_DEV
    "plain.csv": (PLAIN.encode(), []),
    "marked.csv": (f"\ufeff{PLAIN}".encode(), []),
    "unix.csv": (as_csv(lineterminator="\n").encode(), []),
    "blank_lines.csv": (as_csv(lineterminator="\r\n").encode() + b"\r\n\r\n", []),
    "semicolons.csv": (as_csv(delimiter=";").encode(), ["semicolons.csv: separated by semicolons"]),
    "tabs.csv": (as_csv(delimiter="\t").encode(), ["tabs.csv: separated by tabs"]),
    "named.tsv": (as_csv(delimiter="\t").encode(), ["named.tsv: separated by tabs"]),
    "bars.csv": (as_csv(delimiter="|").encode(), ["bars.csv: separated by bars"]),
    "quoted.csv": (as_csv(quoting=csv.QUOTE_ALL, delimiter=";").encode(), ["quoted.csv: separated by semicolons"]),
    "windows.csv": (PLAIN.encode("cp1252"), ["windows.csv: encoded in cp1252"]),
    "excel.csv": (
        as_csv(delimiter="\t").encode("utf-16"),
        ["excel.csv: separated by tabs, encoded in utf-16"],
    ),
    "latin.csv": (
        as_csv([(text.replace("“", "'").replace("”", "'"), label) for text, label in ROWS]).encode("latin-1"),
        ["latin.csv: encoded in cp1252"],
    ),
    "capitals.csv": (
        as_csv(header=("Text", "Label")).encode(),
        ["columns: text is the column 'Text', label is the column 'Label'"],
    ),
    "review.csv": (
        as_csv([(i, *row) for i, row in enumerate(ROWS)], header=("id", "review", "stars")).encode(),
        ["columns: text is the column 'review', label is the column 'stars'"],
    ),
    "two.csv": (
        as_csv([(label, text) for text, label in ROWS], header=("a", "b")).encode(),
        ["columns: text is the column 'b', label is the column 'a'"],
    ),
}


def write(folder: Path, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return str(folder)


def texts_of(task: Task) -> set[tuple[str, str]]:
    return {
        (row["text"], task.labels[row["label"]])
        for table in task.splits.values()
        for row in table.to_pylist()
    }  # fmt: skip


@pytest.mark.parametrize("name", MESSY)
def test_one_messy_file_is_a_task(tmp_path, name):
    data, said = MESSY[name]
    folder = write(tmp_path, {name: data})
    task = read_task(f"{folder}/{name}")
    assert task.name == name.partition(".")[0] and task.labels == ("bad", "good", "so so")
    assert list(task.notes) == [*said, NO_DEV]
    expected = set(ROWS)
    if name == "latin.csv":
        expected = {(text.replace("“", "'").replace("”", "'"), label) for text, label in expected}
    assert texts_of(task) == expected
    alike = [read_task(folder, task_root=""), read_task(name.partition(".")[0], task_root=folder)]
    assert alike == [Task(**vars(task) | {"name": other.name}) for other in alike]


def test_columns_may_be_named_and_are_part_of_the_task(tmp_path):
    rows = [(text, label, "x" if i % 2 else "y") for i, (text, label) in enumerate(ROWS)]
    place = write(tmp_path, {"a.csv": as_csv(rows, header=("text", "label", "kind")).encode()}) + "/a.csv"
    usual, other = read_task(place), read_task(place, columns=Columns(label="kind"))
    assert other.labels == ("x", "y") and usual.digests != other.digests
    assert read_task(place, columns=Columns(text="text")) == usual
    with pytest.raises(ValueError, match=r"no column 'colour', only text, label, kind; .*--label"):
        read_task(place, columns=Columns(label="colour"))
    pairs = read_task(place, columns=Columns(text="kind", text_pair="text"))
    assert pairs.train_texts[0][:4] in ("x Ca", "y Ca")


def table(rows) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]}), sink)
    return sink.getvalue()


ALIKE = {
    "marks": ("[[ a ]] uses << b >> in study {}", "a uses [[ b ]] in << study >> {}"),
    "tags": ("<e1>a</e1> uses <e2>b</e2> in study {}", "a uses <e1>b</e1> in <e2>study</e2> {}"),
    "spelling": ("Product {} is good", "product {}, is  good!"),
}


@pytest.mark.parametrize("how", ALIKE)
def test_rows_that_are_alike_stay_in_one_split_and_other_tasks_keep_theirs(tmp_path, how):
    rows = [(form.format(i), str(i % 2)) for i in range(60) for form in ALIKE[how]]
    place = write(tmp_path, {"a.csv": as_csv(rows).encode()}) + "/a.csv"
    task = read_task(place)
    found = {split: re.findall(r"\b\d+", " ".join(task.texts(split))) for split in SPLITS}
    assert [len(found[split]) for split in SPLITS] == [96, 12, 12]
    assert not (set(found["dev"]) | set(found["test"])) & set(found["train"])
    turned = read_task(write(tmp_path, {"b.csv": as_csv(rows[::-1]).encode()}) + "/b.csv")
    assert turned.texts("dev") == task.texts("dev")[::-1], "for any order of rows"


def test_splits_of_a_task_without_alike_rows_stay_as_they_were(tmp_path):
    task = read_task(write(tmp_path, {"plain.csv": PLAIN.encode()}) + "/plain.csv")
    assert [text[9:11] for text in task.texts("dev")] == ["7,", "45", "53", "54", "56", "58"]
    assert [text[9:11] for text in task.texts("test")] == ["3,", "6,", "23", "26", "43", "46"]
    assert [digest[:8] for digest in task.digests] == ["78f8977b", "5213b2e5", "27e98155"]


ALPHABETS = {
    "cp1251": "Отличный товар, очень доволен покупкой",
    "koi8-r": "Ужасное качество, сломалось через день",
    "cp1253": "Πολύ καλό προϊόν",
    "gbk": "质量很好，非常满意",
    "shift_jis": "とても良い商品です",
    "euc-kr": "아주 좋은 제품입니다",
}
WESTERN = (
    "L’été dernier, à l’hôtel « Brézé », où l’œuvre… naïve coûta 5 €",
    "Größe übermäßig – Ärger, Öl",
    "¡Qué año!",
)


@pytest.mark.parametrize("encoding", ALPHABETS)
def test_an_encoding_of_another_alphabet_is_refused_rather_than_read_as_western_letters(tmp_path, encoding):
    rows = [(f"https://example.org/{i}", f"{ALPHABETS[encoding]} {i}", "pn"[i % 2]) for i in range(60)]
    place = write(tmp_path, {"a.csv": as_csv(rows, header=("url", "text", "label")).encode(encoding)}) + "/a.csv"
    for read in (read_task, lambda uri: open_corpus(uri, column="text")):
        with pytest.raises(ValueError, match=r"a\.csv': its encoding is none of UTF-8, UTF-16 and Windows-1252"):
            read(place)


def test_western_text_is_read_as_ever_and_a_corpus_names_its_encoding_too(tmp_path):
    rows = [(text, "pn"[i % 2]) for i, text in enumerate(WESTERN)]
    place = write(tmp_path, {"a.csv": as_csv(rows, delimiter=";").encode("cp1252"), "b.csv": PLAIN.encode()})
    assert [row["text"] for batch in read_columns(f"{place}/a.csv") for row in batch.to_pylist()] == list(WESTERN)
    assert open_corpus(place, column="text").dialect == "a.csv: separated by semicolons, encoded in cp1252"
    assert open_corpus(f"{place}/b.csv", column="text").dialect == ""


LATE = {
    "even": '"unclosed quote,n\nnext row,p\nfourth "row",n\n',
    "multi-line": '"a value\nof two lines",p\n"unclosed quote,n\nnext row,p\nfourth "row",n\n',
}


@pytest.mark.parametrize("end", LATE)
def test_an_unclosed_quote_beyond_the_first_megabytes_merges_no_rows_of_a_task(tmp_path, monkeypatch, end):
    monkeypatch.setattr(dialects, "SAMPLE_BYTES", 1000)
    rows = as_csv([(f"text {i}", "pn"[i % 2]) for i in range(100)], lineterminator="\n")
    place = write(tmp_path, {"a.csv": (rows + LATE[end]).encode()}) + "/a.csv"
    if end == "multi-line":
        with pytest.raises(ValueError, match=r"a.csv', line 10[3-6]: unbalanced quote .* multi-line values; double"):
            read_task(place)
        return
    task = read_task(place)
    assert sum(map(len, task.splits.values())) == 103
    assert any('"unclosed quote' in task.texts(split) for split in SPLITS)
    assert task.notes[0] == "a.csv: quotes taken as ordinary characters"
    monkeypatch.setattr(dialects, "SAMPLE_BYTES", 1 << 20)
    assert read_task(place).digests != task.digests, "such a file was read otherwise by earlier versions"


PARTS = [table(ROWS[:20]), table(ROWS[20:40]), table(ROWS[40:])]
LAYOUTS = {
    "one shard a split": {f"data/{name}-00000-of-00001.parquet": PARTS[0] for name in ("train", "validation", "test")},
    "two shards": {f"train-0000{i}-of-00002.parquet": PARTS[i] for i in (0, 1)} | {"val.parquet": PARTS[2]},
    "folders of parts": {f"train/{i}.parquet": PARTS[i] for i in (0, 1)} | {"test/0.parquet": PARTS[2]},
    "converted by the hub": {f"default/{split}/0000.parquet": PARTS[0] for split in ("train", "validation", "test")},
    "no dev": {"train.csv": PLAIN.encode(), "test.csv": PLAIN.encode()},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_the_hub_open_as_they_are(tmp_path, name):
    task = read_task(write(tmp_path / "mine", LAYOUTS[name]))
    sizes = {split: len(rows) for split, rows in task.splits.items()}
    assert (
        sizes
        == {
            "one shard a split": {"train": 20, "dev": 20, "test": 20},
            "two shards": {"train": 37, "dev": 20, "test": 3},
            "folders of parts": {"train": 37, "dev": 3, "test": 20},
            "converted by the hub": {"train": 20, "dev": 20, "test": 20},
            "no dev": {"train": 54, "dev": 6, "test": 60},
        }[name]
    )
    assert name != "two shards" or task.notes[0].startswith("no test file: a tenth of the texts each")


SPEECH = [(f'"Speech no. {i}' if i % 10 == 3 else f"speech no. {i}", "ab"[i % 2]) for i in range(60)]
SAID = [(f'"Yes", said {i}' if i % 10 == 3 else f"no. {i}", "ab"[i % 2]) for i in range(60)]
UNQUOTED = {
    "speech.tsv": "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *SPEECH]),
    "label_first.tsv": "".join(f"{label}\t{text}\n" for text, label in [("text", "label"), *SPEECH]),
    "one_quote.tsv": "".join(f"{label}\t{text}\n" for text, label in [("text", "label"), *SPEECH[:14]]),
    "closed_later.tsv": "".join(
        f"{text}{'' if number % 10 else chr(34)}\t{label}\n"
        for number, (text, label) in enumerate([("text", "label"), *SPEECH])
    ),
    "speech.csv": "".join(f"{label},{text}\n" for text, label in [("text", "label"), *SPEECH]),
    "said.tsv": "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *SAID]),
}


NO_LINE_ENDS = "\x0b\x0c\x85\u2028"  # of a CSV file, though str.splitlines has them
UNQUOTED |= {
    f"{ord(character):x}.tsv": UNQUOTED["speech.tsv"] + f"plain{character}one\ta\n" for character in NO_LINE_ENDS
}


@pytest.mark.parametrize("name", UNQUOTED)
def test_texts_that_begin_with_a_quote_are_rows_where_nobody_quotes(tmp_path, name):
    (tmp_path / name).write_text(UNQUOTED[name])
    rows = UNQUOTED[name].rstrip("\n").split("\n")[1:]
    task = read_task(str(tmp_path / name))
    assert sum(len(table) for table in task.splits.values()) == len(rows)
    assert any("quotes taken as ordinary characters" in note for note in task.notes)
    found = {f"{row['text']}" for table in task.splits.values() for row in table.to_pylist()}
    assert all(any(text in row for row in rows) for text in found) and any(text.startswith('"') for text in found)


def test_rows_that_earlier_versions_read_otherwise_are_another_task(tmp_path):
    for name in ("speech.tsv", "2028.tsv"):
        for split in ("train", "dev", "test"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"{split}.tsv").write_text(UNQUOTED[name])
        by_bytes = hashlib.sha256((tmp_path / name / "dev.tsv").read_bytes()).hexdigest()
        assert (by_bytes in read_task(str(tmp_path / name)).digests) == (name == "speech.tsv")


def test_a_quote_that_runs_over_rows_of_many_commas_is_named(tmp_path):
    lines = [f"a,text {i}" for i in range(9)] + ['a,"One, two', 'b,"three, four, five', "b,six"]
    (tmp_path / "f.csv").write_text("\n".join(["label,text", *lines, ""]))
    with pytest.raises(ValueError, match=r"f.csv', line 12: unbalanced quote .* multi-line values; double a quote"):
        read_task(str(tmp_path / "f.csv"))


def test_a_damaged_byte_does_not_make_a_file_another_code_page(tmp_path):
    data = b"text,label\n" + b"".join(f"Sch\u00f6ne Gr\u00fc\u00dfe {i},{i % 2}\n".encode() for i in range(60))
    (tmp_path / "f.csv").write_bytes(data[:700] + b"\xff" + data[701:])
    with pytest.raises(
        ValueError, match=r"line 35: byte 700, b'\\xff', is not UTF-8, but the rest of the file is; fix that line"
    ):
        read_task(str(tmp_path / "f.csv"))


HALF_NAMED = ["validation_matched.csv", "my_test.csv", "eval-2.csv"]


@pytest.mark.parametrize("name", HALF_NAMED)
def test_a_file_that_may_be_a_missing_split_is_asked_about(tmp_path, name):
    for file in ("train.csv", name):
        (tmp_path / file).write_text(as_csv())
    with pytest.raises(
        ValueError, match=f"but '{name}'; if that is (dev|test), rename it (dev|test).csv, else remove it"
    ):
        read_task(str(tmp_path))


def test_names_of_splits_are_known_in_capitals_and_with_the_hubs_hashes(tmp_path):
    for file in ("Train-00000-of-00001-0f3a9c2b.csv", "EVAL.csv", "Test.csv", "unsupervised.csv"):
        (tmp_path / file).write_text(as_csv())
    assert {split: len(table) for split, table in read_task(str(tmp_path)).splits.items()} == dict.fromkeys(
        ("train", "dev", "test"), 60
    )


@pytest.mark.parametrize(
    ("rows", "metric"),
    [
        ([(f"question {i}", str(i // 2)) for i in range(40)], ""),
        ([(f"text {i}", f"{i}") for i in range(9)], "pearson_spearman"),
    ],
)
def test_a_file_too_small_to_be_cut_is_told_before_any_work(tmp_path, rows, metric):
    (tmp_path / "f.csv").write_text(as_csv(rows))
    message = (
        r"too few rows to cut dev from: column 'label', taken for the label, has \d+ values in \d+ rows; a class needs"
    )
    with pytest.raises(ValueError, match=message):
        read_task(str(tmp_path / "f.csv"), metric=metric)


def test_a_class_whose_texts_all_have_another_label_too_stays_in_train(tmp_path):
    rows = [(f"text {i}", "ac"[i % 2]) for i in range(60)]
    (tmp_path / "f.csv").write_text(as_csv(rows + [(text, "b") for text, _ in rows[:2]]))
    assert read_task(str(tmp_path / "f.csv")).labels == ("a", "b", "c")


def test_columns_that_change_their_kind_stop_no_task_that_does_not_need_them(tmp_path):
    rows = [{"text": f"text {i}", "label": i % 2 if i < 8192 else str(i % 2)} for i in range(20_000)]
    for i, row in enumerate(rows):
        row |= {"id": i if i < 8192 else f"x{i}", "meta": {"a": 1} if i < 8192 else [1, 2]}
    (tmp_path / "f.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = read_task(str(tmp_path / "f.jsonl"))
    assert task.labels == ("0", "1") and sum(len(table) for table in task.splits.values()) == 20_000


def test_cut_splits_share_no_text_and_each_class_is_in_all(tmp_path):
    rows = [*ROWS, *ROWS[:30], ("rare", "once")]
    task = read_task(write(tmp_path, {"a.csv": as_csv(rows).encode()}))
    texts = {split: set(task.texts(split)) for split in task.splits}
    assert sum(map(len, texts.values())) == 61 and len(set.union(*texts.values())) == 61
    for split, found in task.splits.items():
        labels = {task.labels[i] for i in found["label"].to_pylist()}
        assert labels == ({"bad", "good", "so so"} | ({"once"} if split == "train" else set()))
    shuffled = read_task(write(tmp_path / "b", {"a.csv": as_csv(rows[::-1]).encode()}))
    assert {split: set(shuffled.texts(split)) for split in shuffled.splits} == texts
    numbers = [(text, i) for i, (text, _) in enumerate(ROWS)]
    place = write(tmp_path / "c", {"a.csv": as_csv(numbers).encode()})
    assert [len(rows) for rows in read_task(place, metric="pearson_spearman").splits.values()] == [48, 6, 6]


WRONG = {
    "three.csv": (as_csv([("a", "b", "c")], header=("x", "y", "z")), r"no column 'text', only x, y, z; .*--text"),
    "unquoted.csv": ("text,label\na, b,x\nc,y\n", r"row 1: Expected 2 columns, got 3.* quote values"),
    "one_class.csv": (as_csv([("a", "x"), ("b", "x")]), "one class only, 'x'; classification needs two or more"),
    "empty.csv": ("", "Empty CSV file"),
    "header.csv": ("text,label\n", "has no rows"),
    "gaps.csv": (
        as_csv([("a", "x"), ("", "y"), ("b", ""), (" ", "x")] + [("", "y")] * 20),
        r"rows 2, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 12 more: text is empty; .* And row 3: label is empty",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_one_can_read_gets_one_line_with_the_fix(tmp_path, name):
    text, message = WRONG[name]
    with pytest.raises(ValueError, match=message) as caught:
        read_task(write(tmp_path, {name: text.encode()}) + f"/{name}")
    assert "\n" not in str(caught.value) and name in str(caught.value)


def test_all_bad_rows_of_a_file_are_told_at_once(tmp_path):
    files = {"train.csv": as_csv().encode(), "dev.csv": as_csv([("a", "Good"), ("b", "bad"), ("c", "Good")]).encode()}
    with pytest.raises(ValueError, match=r"dev.csv', rows 1, 3: label 'Good' is not among .* bad, good, so so"):
        read_task(write(tmp_path, files))


@pytest.mark.slow
def test_from_one_csv_and_a_folder_of_text_to_predictions_by_two_commands(tmp_path, data, called):
    rows = pq.read_table(data / "tasks" / "topics" / "train.parquet").to_pylist()
    own = as_csv([(row["label"], row["text"]) for row in rows], header=("what", "said"), delimiter=";")
    write(tmp_path, {"topics.csv": own.encode("utf-16")})
    texts = [text for part in (data / "corpus").glob("*.parquet") for text in pq.read_table(part)["text"].to_pylist()]
    write(tmp_path, {"texts/all.txt": "\n\n".join(texts).encode()})
    places = {"--tasks": "topics.csv", "--corpus": "texts", "--root": "tlm", "--model": "model"}
    small = ("--steps", "4", "--steps-two", "2", "--k", "5", "--seeds", "1", "--precision", "fp32")
    small += ("--tracking-uri", empty_store(tmp_path))
    words = [word for flag, name in places.items() for word in (flag, f"{tmp_path}/{name}")]
    printed = called("experiments/train.py", *words, *small)
    said = " ".join(printed.split())
    assert "topics: topics.csv: separated by semicolons, encoded in utf-16" in said
    assert "topics: columns: text is the column 'said', label is the column 'what'" in said
    assert "topics: no dev and no test file: a tenth of the texts each" in said
    assert "rows 48 6 6" in said and re.search(r"sea: \w+", said), "what the file was taken for, before any work"
    (command,) = re.findall(r"^python experiments/predict.py (.*)$", printed, re.M)
    words = command.replace("new.csv", f"{tmp_path}/topics.csv").replace("predictions", f"{tmp_path}/out").split()
    assert "60 rows in" in called("experiments/predict.py", *words)
    (part,) = (tmp_path / "out").glob("*.parquet")
    assert set(pq.read_table(part)["predicted"].to_pylist()) <= {"sea", "sky", "kitchen"}
