"""The whole flow on an object store: what a local disk gives, when the store refuses requests and when it goes away."""

import threading
from pathlib import Path

import pytest
from small import laid_out, small_flow
from stores import door, query_of, refusing_store, store

from tlm_ray import plain_errors, storage
from tlm_ray.corpus.general.manifest import open_corpus
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.stages.making import Execution, make
from tlm_ray.runs.stages.registry import note
from tlm_ray.storage.listing import base_of, list_files, name_below

pytestmark = pytest.mark.usefixtures("alone")
RECORD = "record.json"  # which tells times and hosts


@pytest.fixture(scope="module")
def port():
    with store() as found:
        yield found


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """What a training on a local disk leaves, by name."""
    root = tmp_path_factory.mktemp("root")
    from alone import in_this_process

    with in_this_process():
        return made_of(small_flow(data, root))


def made_of(flow: Flow) -> dict[str, bytes]:
    """Make the stages of one training; return the bytes below the root, without the records."""
    make([laid_out(flow).metrics], flow.execution.root)
    base = base_of(flow.execution.root)
    found = {name_below(base, file.uri): file.uri for file in list_files(flow.execution.root)}
    return {name: storage.read_bytes(uri) for name, uri in found.items() if not name.endswith(RECORD)}


def on_store(data: Path, query: str, name: str, port: int, *, keys: str = "key:secret") -> Flow:
    """Return the flow over the small data, all of it in a bucket of its own."""
    bucket = f"s3://{keys}@{name}"
    storage.copy_folder(str(data), f"{bucket}/data{query_of(port)}")
    corpus = open_corpus(f"{bucket}/data/corpus{query}", column="text")
    root = f"{bucket}/root{query}"
    return Flow(execution=Execution(root=root), corpus=corpus, task_root=f"{bucket}/data/tasks{query}")


def test_a_store_that_refuses_some_requests_gives_the_bytes_of_a_local_disk(data, files, port):
    with door(port, refused=0.1) as (seen, query):
        assert made_of(on_store(data, query, "refused", port)) == files
    assert seen.turned_away


def test_a_store_that_goes_away_and_comes_back_gives_the_bytes_of_a_local_disk(data, files, port):
    with door(port) as (seen, query):
        flow = on_store(data, query, "away", port)
        away = threading.Timer(0.5, seen.shut, [3.0])
        away.start()
        assert made_of(flow) == files
        away.join()


def test_no_file_of_a_training_holds_the_credentials_of_its_locations(data, files, port):
    query, keys = query_of(port), "AKIAKEY:TOP@SECRET"
    flow = on_store(data, query, "kept-secret", port, keys=keys)
    kept = f"s3://{keys}@kept-secret/root/corpora.json{query}"
    open_corpus(f"s3://{keys}@kept-secret/data/corpus{query}", column="text", digests=kept)
    note(flow.execution.root, "table", [laid_out(flow).metrics])
    assert made_of(flow).items() >= files.items(), "the bytes of a local disk"
    contents = {file.uri: storage.read_bytes(file.uri) for file in list_files(flow.execution.root)}
    assert len(contents) > 30
    assert not [uri for uri, content in contents.items() if b"SECRET" in content or b"AKIAKEY" in content]


def fill(uri: str) -> None:
    with storage.folder_for_writing(uri) as folder:
        (folder / "config.json").write_text("{}")


WRITES = {
    "bytes": lambda uri, data: storage.write_bytes(uri, b"few"),
    "more bytes": lambda uri, data: storage.write_bytes(uri, bytes(30_000_000)),
    "folder": lambda uri, data: fill(uri),
    "copy": lambda uri, data: storage.copy_folder(str(data), uri),
}


@pytest.mark.parametrize("what", WRITES)
def test_what_a_store_did_not_take_is_an_error(data, what):
    with refusing_store() as query, pytest.raises(OSError, match="ACCESS_DENIED"):
        WRITES[what](f"s3://key:secret@bucket/there{query}", data)


@pytest.mark.parametrize("given", ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE"])
def test_a_refusal_is_told_with_what_may_help(monkeypatch, capsys, given):
    monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE", raising=False)
    monkeypatch.setenv(given, "name")
    with refusing_store() as query, pytest.raises(SystemExit), plain_errors():
        storage.exists(f"s3://key:secret@bucket/there{query}")
    said = " ".join(capsys.readouterr().out.split())
    assert ("web identity" in said) == ("WEB" in given) and ("AWS_ACCESS_KEY_ID" in said) != ("WEB" in given), said


def test_a_folder_arrives_whole_in_a_store(tmp_path, port):
    (tmp_path / "here" / "below").mkdir(parents=True)
    contents = {"empty": b"", "below/some": b"some", "much": bytes(20_000_000)}
    for name, content in contents.items():
        (tmp_path / "here" / name).write_bytes(content)
    there = f"s3://key:secret@folders/there{query_of(port)}"
    storage.copy_folder(str(tmp_path / "here"), there)
    storage.copy_folder(there, str(tmp_path / "back"))
    assert {name: (tmp_path / "back" / name).read_bytes() for name in contents} == contents
