"""Locks: one job a stage, a lock falls with its owner, and only its owner removes it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tlm_ray import storage
from tlm_ray.runs import locks
from tlm_ray.runs.locks import StageLocked, locked

HERE = socket.gethostname()


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "stage_one" / "0123456789")


@pytest.fixture
def child():
    """A process that sleeps until it is told to end."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def lock_file(folder):
    return storage.join(folder, locks.LOCK)


def write_lock(folder, *, host=HERE, pid=0, started=None, age_s=0.0):
    started = locks._started(pid) if started is None else started
    lock = {"owner": "theirs", "host": host, "pid": pid, "started": started, "beat": time.time() - age_s}
    storage.write_json(lock_file(folder), lock)


def end(process):
    process.kill()
    process.communicate()


def test_the_lock_names_its_owner_and_is_gone_afterwards(folder):
    with locked(folder):
        lock = storage.read_json(lock_file(folder))
        assert (lock["host"], lock["pid"]) == (HERE, os.getpid())
        assert time.time() - lock["beat"] < 5
    assert not storage.exists(lock_file(folder))


def test_a_second_job_is_refused_with_host_and_process(folder):
    with locked(folder):
        with (
            pytest.raises(StageLocked, match=f"host {HERE}, process {os.getpid()}.* wait for it, or stop it"),
            locked(folder),
        ):
            pytest.fail("two jobs hold one lock")
        assert storage.exists(lock_file(folder)), "the one that was refused must not remove it"
    with locked(folder):
        pass


def test_two_stages_do_not_lock_each_other(tmp_path):
    folders = [str(tmp_path / name) for name in ("one", "two")]
    with locked(folders[0]), locked(folders[1]):
        assert all(storage.exists(lock_file(folder)) for folder in folders)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_lock_is_released_after_an_error(folder, error):
    with pytest.raises(error), locked(folder):
        raise error
    assert not storage.exists(lock_file(folder))
    assert not any("_keep_beating" in thread.name for thread in threading.enumerate())


def test_the_lock_of_a_running_process_of_this_host_holds(folder, child):
    write_lock(folder, pid=child.pid)
    with pytest.raises(StageLocked, match=f"process {child.pid}"), locked(folder):
        pass


def test_the_lock_of_a_process_of_this_host_that_is_gone_is_free_at_once(folder, child):
    write_lock(folder, pid=child.pid)
    end(child)
    with locked(folder):
        assert storage.read_json(lock_file(folder))["pid"] == os.getpid()


def test_a_process_that_was_given_the_number_of_a_dead_one_does_not_hold_its_lock(folder, child):
    write_lock(folder, pid=child.pid, started="an earlier start")
    with locked(folder):
        assert storage.read_json(lock_file(folder))["pid"] == os.getpid()


def test_a_fresh_lock_of_another_host_holds_whatever_runs_here(folder, child):
    write_lock(folder, host="elsewhere", pid=child.pid, started="unknown here", age_s=locks.STALE_S - 5)
    with pytest.raises(StageLocked, match=f"host elsewhere, process {child.pid}"), locked(folder):
        pass


@pytest.mark.parametrize("host", [HERE, "elsewhere"])
def test_a_lock_without_a_heartbeat_for_a_minute_is_taken_over(folder, child, host):
    write_lock(folder, host=host, pid=child.pid, age_s=locks.STALE_S + 1)
    with locked(folder):
        assert storage.read_json(lock_file(folder))["host"] == HERE


def test_the_heart_beats_while_the_lock_is_held(folder, monkeypatch):
    monkeypatch.setattr(locks, "BEAT_S", 0.001)
    beats, beat = threading.Semaphore(0), locks._beat
    monkeypatch.setattr(locks, "_beat", lambda uri, mine: (beat(uri, mine), beats.release()))
    with locked(folder):
        first = storage.read_json(lock_file(folder))["beat"]
        assert all(beats.acquire(timeout=10) for _ in range(3))
        assert storage.read_json(lock_file(folder))["beat"] > first
    assert not storage.exists(lock_file(folder)), "no beat may come after the release"


def test_a_job_that_lost_its_lock_leaves_the_new_owners_alone(folder, child, monkeypatch):
    monkeypatch.setattr(locks, "BEAT_S", 0.001)
    asked, is_mine = threading.Semaphore(0), locks._is_mine
    monkeypatch.setattr(locks, "_is_mine", lambda uri, mine: (is_mine(uri, mine), asked.release())[0])
    with locked(folder):
        write_lock(folder, pid=child.pid)
        assert all(asked.acquire(timeout=10) for _ in range(3))
    assert storage.read_json(lock_file(folder))["owner"] == "theirs"


def test_of_jobs_that_come_at_once_one_gets_the_lock(tmp_path):
    def attempt(folder):
        barrier.wait()
        try:
            with locked(folder):
                inside.append(folder)
                leave.wait()
        except StageLocked:
            leave.wait()
            return 0
        return 1

    barrier, leave, inside = threading.Barrier(4), threading.Barrier(4), []
    with ThreadPoolExecutor(4) as pool:
        for turn in range(15):
            assert sum(pool.map(attempt, [str(tmp_path / str(turn))] * 4)) == 1


def test_a_job_stopped_by_a_signal_holds_no_lock(folder):
    code = f"""
import sys
from tlm_ray.runs.locks import locked
with locked({folder!r}):
    print("held", flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout.readline() == b"held\n"
        with pytest.raises(StageLocked, match=f"process {job.pid}"), locked(folder):
            pass
        job.send_signal(signal.SIGKILL)
        job.wait()
        assert storage.exists(lock_file(folder)), "killed, it could not remove it"
        with locked(folder):
            pass
