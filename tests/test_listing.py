"""Listings: the same names on a local disk, an S3 store of moto and the hub's filesystem."""

import os
from glob import glob

import pytest
from places import fill, names

from tlm_ray import storage
from tlm_ray.storage.listing import base_of, check_only, list_files

ODD_NAMES = ("with space.txt", "naïve é.txt", "50%20off.txt", "why?.txt", "no#1.txt", "a[1].txt", "*.txt", "x&y=z.txt")


def test_a_folder_is_listed_whole_and_in_order(root):
    fill(root, "b/2.txt", "a.txt", "b/1.txt", "c/d/e/f.csv", "b.txt")
    found = list_files(root)
    assert names(root, found) == ["a.txt", "b.txt", "b/1.txt", "b/2.txt", "c/d/e/f.csv"]
    assert [file.size for file in found] == [5, 5, 7, 7, 11]
    assert [storage.read_bytes(file.uri).decode() for file in found] == names(root, found)
    assert names(root, list_files(root, ".csv")) == ["c/d/e/f.csv"]
    assert all(file.modified_ns > 10**18 for file in found)


def test_bookkeeping_of_other_tools_is_left_out(root):
    fill(root, "a.txt", ".a.txt.swp", "_SUCCESS", ".git/config", "_temporary/0/part.txt", "b/_metadata", "b/c.txt")
    assert names(root, list_files(root)) == ["a.txt", "b/c.txt"]
    assert names(root, list_files(storage.join(root, "*"))) == ["a.txt", "b/c.txt"]
    assert len(list_files(storage.join(root, "_SUCCESS"))) == 1  # asked for by name


def test_hidden_folders_above_the_location_do_not_matter(root):
    fill(root, ".cache/_run/a.txt")
    assert len(list_files(storage.join(root, ".cache", "_run"))) == 1
    assert len(list_files(storage.join(root, ".cache", "_run", "*.txt"))) == 1


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("*.txt", ["a1.txt", "a2.txt", "b/a3.txt"]), ("a*1*", ["a1.txt"]), ("b/*", ["b/a3.txt", "b/c.csv"])],
)
def test_a_glob_finds_what_it_says(root, pattern, expected):
    fill(root, "a1.txt", "a2.txt", "b/a3.txt", "b/c.csv", "d.csv")
    found = list_files(storage.join(root, *pattern.split("/")))
    assert names(root, found) == expected


@pytest.mark.parametrize("folder", ["data[1]", "all*", "b/data[1]/in[2]"])
@pytest.mark.parametrize("pattern", ["*.txt", "**/*.txt", "[ab].txt"])
def test_a_folder_that_is_there_is_meant_by_its_name(root, folder, pattern):
    fill(root, *(f"{folder}/{name}" for name in ("a.txt", "b.txt", "c.csv")), "data1/a.txt", "all1/a.txt", "b/data1/a")
    location = storage.join(root, *folder.split("/"), *pattern.split("/"))
    assert names(location, list_files(location)) == ["a.txt", "b.txt"]
    assert base_of(location) == base_of(storage.join(root, *folder.split("/")))


def test_a_local_folder_may_have_a_question_mark(tmp_path):
    fill(str(tmp_path), "why?/a.txt", "whys/a.txt")
    assert [file.uri for file in list_files(str(tmp_path / "why?" / "*.txt"))] == [str(tmp_path / "why?" / "a.txt")]


@pytest.mark.parametrize("pattern", ["**/*.txt", "b/**/*.txt", "**/c/**/*.txt", "**/a*"])
def test_two_stars_stand_for_any_number_of_folders(root, tmp_path, pattern):
    files = ("a1.txt", "b/a2.txt", "b/c/a3.txt", "b/c/d/a4.txt", "c/a5.txt", "d.csv")
    for place in (root, str(tmp_path / "local")):
        fill(storage.join(place, "in"), *files)
    expected = sorted(glob(pattern, root_dir=tmp_path / "local" / "in", recursive=True))
    found = list_files(storage.join(root, "in", *pattern.split("/")))
    assert [file.uri.partition("?")[0].partition("/in/")[2] for file in found] == expected


@pytest.mark.parametrize(("pattern", "expected"), [("a?.txt", ["a1.txt", "a2.txt"]), ("a[2-9].txt", ["a2.txt"])])
def test_question_marks_and_ranges_are_globs_of_local_paths(tmp_path, pattern, expected):
    fill(tmp_path, "a1.txt", "a2.txt", "a10.txt")
    location = str(tmp_path / pattern)
    assert names(location, list_files(location)) == expected
    assert base_of(location) == str(tmp_path)


@pytest.mark.parametrize("name", ["nothing", "nothing/*.txt", "*.nothing"])
def test_a_location_without_files_is_named(root, name):
    fill(root, "a.txt")
    uri = storage.join(root, *name.split("/"))
    with pytest.raises(FileNotFoundError) as caught:
        list_files(uri)
    assert uri in str(caught.value)
    assert list_files(uri, missing_ok=True) == []


def test_a_suffix_that_no_file_has_is_no_file(root):
    fill(root, "a.txt")
    with pytest.raises(FileNotFoundError):
        list_files(root, ".csv")


def test_the_base_is_the_folder_that_names_are_relative_to(root):
    fill(root, "folder/a.txt", "folder/b/c.txt")
    folder = storage.join(root, "folder")
    bases = {base_of(folder)}
    bases |= {base_of(storage.join(folder, *parts)) for parts in (("a.txt",), ("*",), ("*.txt",), ("b*",))}
    assert len(bases) == 1
    assert bases.pop() == folder.partition("?")[0]


def test_listed_files_are_opened_whatever_their_names_hold(tmp_path, s3_query):
    inside = [f"folder with space/{name}" for name in ODD_NAMES]
    places = {str(tmp_path): "", tmp_path.as_uri(): "", f"s3://key:secret@odd-names{s3_query}": "odd-names/"}
    for uri, prefix in places.items():
        filesystem, _ = storage.open_filesystem(uri)
        for name in inside:
            path = prefix + name if prefix else str(tmp_path / name)
            filesystem.create_dir(os.path.dirname(path), recursive=True)
            with filesystem.open_output_stream(path) as stream:
                stream.write(name.encode())
        found = list_files(uri)
        assert sorted(names(uri, found)) == sorted(inside)
        assert [storage.read_bytes(file.uri).decode() for file in found] == names(uri, found)
        assert all(list_files(file.uri) == [file] for file in found)


def test_hub_locations_go_through_the_hubs_own_filesystem(hub):
    folder = hub / "someone" / "data"
    (folder / "b").mkdir(parents=True)
    for name in ("a.txt", "b/c.txt", ".gitattributes", "d e%20f.csv"):
        (folder / name).write_text(name)
    root = "hf://datasets/someone/data"
    found = list_files(root)
    assert names(root, found) == ["a.txt", "b/c.txt", "d e%20f.csv"]
    assert [storage.read_bytes(file.uri).decode() for file in found] == names(root, found)
    assert names(root, list_files(root + "/*.csv")) == ["d e%20f.csv"]
    assert base_of(root + "/a.txt") == base_of(root + "/*") == root
    assert storage.exists(root + "/b") and not storage.exists(root + "/z")
    assert not storage.is_local(root)


@pytest.mark.parametrize("pattern", ["", "*.txt"])
def test_a_folder_that_holds_a_link_to_itself_is_listed_once(tmp_path, pattern):
    fill(str(tmp_path), "a.txt", "b/c.txt")
    (tmp_path / "b" / "again").symlink_to(tmp_path)
    (tmp_path / "b" / "gone").symlink_to(tmp_path / "nowhere")
    location = str(tmp_path / pattern) if pattern else str(tmp_path)
    assert names(location, list_files(location)) == ["a.txt", "b/c.txt"]


def test_links_to_files_and_a_link_that_is_asked_for_are_followed(tmp_path):
    fill(str(tmp_path), "real/a.txt")
    (tmp_path / "real" / "b.txt").symlink_to(tmp_path / "real" / "a.txt")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = list_files(str(tmp_path / "link"))
    assert names(str(tmp_path / "link"), found) == ["a.txt", "b.txt"]
    assert [file.size for file in found] == [len("real/a.txt")] * 2


def test_a_folder_below_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    fill(str(tmp_path), "a.txt", "b/c.txt")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="/b"):
        list_files(str(tmp_path))


def test_a_folder_holds_only_what_it_may(root):
    folder = storage.join(root, "kept")
    check_only(folder, ["seed-0"])
    fill(root, "kept/seed-0/model.safetensors", "kept/seed-1/config.json", "beside.txt")
    check_only(folder, ["seed-0", "seed-1"])
    with pytest.raises(ValueError, match=r"holds 'seed-1/config.json' besides seed-0, tf-idf; give another folder"):
        check_only(folder, ["seed-0", "tf-idf"])
