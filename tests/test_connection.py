"""What a script connects to, before Ray itself tries for a quarter of an hour."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tlm_ray import ray_options


@pytest.fixture
def note(tmp_path, monkeypatch) -> Path:
    """The file in which `ray start` leaves its address."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "ray").mkdir()
    return tmp_path / "ray" / "ray_current_cluster"


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_laptop_without_ray_starts_one_without_a_dashboard(note):
    assert ray_options()["include_dashboard"] is False


@pytest.mark.parametrize("is_there", [True, False])
def test_no_other_user_can_read_the_token_of_a_ray_that_a_script_starts(note, tmp_path, monkeypatch, is_there):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    folder = tmp_path / ".ray"
    if is_there:
        folder.mkdir(mode=0o755)
    ray_options()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_address_of_a_killed_ray_is_refused_at_once_and_its_file_named(note, listening):
    note.write_text(listening + "\n")
    ray_options()
    note.write_text("127.0.0.1:1")
    with pytest.raises(ConnectionError, match=r"ray_current_cluster 127\.0\.0\.1:1: no Ray answers .*delete this file"):
        ray_options()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "no-such-host.invalid:6379"])
def test_an_address_where_nothing_answers_is_refused(note, monkeypatch, address):
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConnectionError, match=r"RAY_ADDRESS .*: no Ray answers there .*; start it, or unset it"):
        ray_options()


@pytest.mark.parametrize("address", ["", "auto", "ray://127.0.0.1:1"])
def test_other_forms_of_an_address_are_left_to_ray(note, monkeypatch, address, listening):
    monkeypatch.setenv("RAY_ADDRESS", address)
    ray_options()
    monkeypatch.setenv("RAY_ADDRESS", listening)
    assert "include_dashboard" not in ray_options()


CONNECTED = """
import time
import ray
from tlm_ray import ray_options
ray.init(address="local", num_cpus=1, **ray_options())

@ray.remote
def told():
    print("a worker's line")
    return 3

print(ray.get(told.remote()), "from a worker")
time.sleep(2)  # what workers print takes a while
"""


@pytest.mark.slow
def test_a_start_prints_no_line_of_rays_own_or_of_workers():
    done = subprocess.run([sys.executable, "-c", CONNECTED], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("3 from a worker\n", "")
