"""Locks: one job a stage, however long each sleeps between its steps; a lock falls with its owner, and only with it."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest
from waiting import wait_for

from tlm_ray import storage
from tlm_ray.corpus.general.manifest import Corpus
from tlm_ray.runs.flow import data
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.stages import locks
from tlm_ray.runs.stages.locks import Claim, StageLocked, locked
from tlm_ray.runs.stages.making import Execution
from tlm_ray.storage.listing import list_files

HERE = socket.gethostname()
STAGE = "stage_one/0123456789"
HOLDS_UNTIL_TOLD = """
import sys
from tlm_ray.runs.stages import locks
from tlm_ray.runs.stages.locks import locked
locks.BEAT_S = 0.02
with locked(sys.argv[1], sys.argv[2]):
    print("held", flush=True)
    input()
"""


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "root")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(locks, "PAUSES_S", (0.0, 0.0))


@pytest.fixture
def child():
    """A process that sleeps until it is told to end."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def claims(root):
    return [file.uri for file in list_files(storage.join(root, locks.LOCKS), missing_ok=True)]


def write_claim(root, *, pid, started="", **changes):
    """Leave the claim of another job; return where it is."""
    claim = replace(Claim.mine(), pid=pid, started=started or locks._started(pid), **changes)
    uri = storage.join(root, locks.LOCKS, f"{STAGE}-theirs.json")
    storage.write_json(uri, asdict(claim))
    return uri


@pytest.fixture
def aged(monkeypatch):
    """Have the store say that a claim was written some seconds before all others."""

    def make_old(uri, age_s):
        def old(*arguments, **options):
            files = list_files(*arguments, **options)
            return [f if f.uri == uri else replace(f, modified_ns=f.modified_ns + int(age_s * 1e9)) for f in files]

        monkeypatch.setattr(locks, "list_files", old)

    return make_old


def end(process):
    process.kill()
    process.communicate()


def test_the_claim_names_its_owner_and_is_gone_afterwards(root):
    with locked(root, STAGE):
        (uri,) = claims(root)
        claim = storage.read_json(uri)
        assert (claim["host"], claim["pid"]) == (HERE, os.getpid())
    assert not claims(root)


def test_a_second_job_is_refused_with_host_and_process(root):
    with locked(root, STAGE) as lock:
        with (
            pytest.raises(StageLocked, match=f"host {HERE}, process {os.getpid()}.* wait for it, or stop it"),
            locked(root, STAGE),
        ):
            pytest.fail("two jobs hold one lock")
        lock.check()
        assert len(claims(root)) == 1, "the one that was refused withdraws its own claim, and only that"
    with locked(root, STAGE):
        pass


def test_two_stages_do_not_lock_each_other(root):
    with locked(root, "blocks/01"), locked(root, "blocks/012"), locked(root, "stage_one/01"):
        assert len(claims(root)) == 3


def test_one_job_at_a_time_writes_a_dataset(root, monkeypatch):
    def write(given, **options):
        assert locks.claimed(root).keys() == {"datasets/texts"}
        return corpus

    corpus = Corpus(uri="", column="text", files=(), locations=())
    monkeypatch.setattr(data, "corpus_from", write)
    flow = Flow(execution=Execution(root=root), corpus="a Dataset", corpora={"other": "a Dataset", "files": corpus})
    assert flow.all_corpora == [corpus] * 3 and claims(root) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_lock_is_released_after_an_error(root, error):
    with pytest.raises(error), locked(root, STAGE):
        raise error
    assert not claims(root)
    assert not any("_keep_beating" in thread.name for thread in threading.enumerate())


def test_a_store_that_does_not_list_what_it_holds_is_refused(root, monkeypatch):
    monkeypatch.setattr(locks, "list_files", lambda *arguments: [])
    with pytest.raises(OSError, match="was written and is not listed"), locked(root, STAGE):
        pass
    assert not claims(root)


def test_the_claim_of_a_running_process_of_this_machine_holds(root, child):
    write_claim(root, pid=child.pid)
    with pytest.raises(StageLocked, match=f"process {child.pid}"), locked(root, STAGE):
        pass


def test_the_claim_of_a_process_of_this_machine_that_is_gone_is_void_at_once(root, child):
    uri = write_claim(root, pid=child.pid)
    end(child)
    with locked(root, STAGE):
        assert not storage.exists(uri)


def test_a_process_that_was_given_the_number_of_a_dead_one_does_not_hold_its_lock(root, child):
    uri = write_claim(root, pid=child.pid, started="an earlier start")
    with locked(root, STAGE):
        assert not storage.exists(uri)


def test_the_claim_of_another_users_process_that_is_hidden_here_falls_by_its_heartbeat_only(
    root, child, aged, sleeps, monkeypatch
):
    uri = write_claim(root, pid=child.pid)
    started = locks._started(child.pid)
    monkeypatch.setattr(locks.storage, "read_bytes", hidden(f"/proc/{child.pid}/stat"))
    sleeps += [lambda: write_claim(root, pid=child.pid, started=started)] * 3
    with pytest.raises(StageLocked, match=f"process {child.pid}"), locked(root, STAGE):
        pass
    aged(uri, locks.STALE_S + 1)
    with locked(root, STAGE):
        assert not storage.exists(uri)


def hidden(path):
    """Read files as where `/proc` hides the processes of other users: not that one."""

    def read(uri, read_bytes=storage.read_bytes):
        if uri == path:
            raise PermissionError(uri)
        return read_bytes(uri)

    return read


def test_a_claim_of_another_machine_or_container_that_beats_holds_whatever_runs_here(root, child, sleeps, now):
    elsewhere = {"pid": child.pid, "host": "elsewhere", "space": "a boot, a container", "started": "unknown"}
    write_claim(root, **elsewhere)
    sleeps += [lambda: None] * 3 + [lambda: write_claim(root, **elsewhere)]
    with pytest.raises(StageLocked, match=f"host elsewhere, process {child.pid}"), locked(root, STAGE):
        pass
    assert 0 < now[0] <= 2 * locks.BEAT_S, "it waits for a heartbeat, and no longer"


def test_a_restart_elsewhere_waits_for_a_killed_jobs_claim_and_says_so_once(root, child, aged, sleeps, now, capsys):
    uri = write_claim(root, pid=child.pid, host="killed", space="a boot, a container", started="unknown")
    sleeps += [lambda: aged(uri, now[0])] * 20
    with locked(root, STAGE) as lock:
        assert not storage.exists(uri) and holds(lock)
    assert locks.STALE_S <= now[0] <= locks.STALE_S + locks.BEAT_S
    words = f"waits  {STAGE}: claimed by a job that may be lost (host killed, process {child.pid})"
    assert capsys.readouterr().out.count(words) == 1


def test_a_claim_that_never_expires_is_waited_for_a_minute(root, child, sleeps, now):
    write_claim(root, pid=child.pid, space="a boot, a container")
    with pytest.raises(StageLocked, match=f"process {child.pid}"), locked(root, STAGE):
        pass
    assert now[0] == locks.STALE_S + locks.BEAT_S


@pytest.mark.parametrize("space", ["", "a boot, a container"])
def test_a_claim_without_a_heartbeat_for_a_minute_is_void(root, child, aged, space):
    uri = write_claim(root, pid=child.pid, **({"space": space} if space else {}))
    aged(uri, locks.STALE_S + 1)
    with locked(root, STAGE):
        assert not storage.exists(uri)


def test_a_claim_that_is_withdrawn_between_listing_and_reading_is_none(root, monkeypatch):
    write_claim(root, pid=os.getpid())
    assert locks.claimed(root).keys() == {STAGE}
    monkeypatch.setattr(locks.storage, "read_json", lambda uri: (storage.delete(uri), storage.read_bytes(uri)))
    assert not locks.claimed(root)


def test_a_damaged_claim_is_named(root):
    uri = storage.join(root, locks.LOCKS, f"{STAGE}-theirs.json")
    storage.write_json(uri, {"owner": "an earlier form"})
    with pytest.raises(ValueError, match=f"{uri}.* is no claim of a job .*; delete this file"), locked(root, STAGE):
        pass


def test_the_heart_beats_while_the_lock_is_held(root, monkeypatch):
    monkeypatch.setattr(locks, "BEAT_S", 0.001)
    beats, beat = threading.Semaphore(0), locks._beat
    monkeypatch.setattr(locks, "_beat", lambda uri: (beat(uri), beats.release()))
    with locked(root, STAGE):
        (first,) = list_files(storage.join(root, locks.LOCKS), ".json")  # a beat writes another file first
        while beats.acquire(blocking=False):  # those of before
            pass
        assert all(beats.acquire(timeout=10) for _ in range(3))
        (later,) = list_files(storage.join(root, locks.LOCKS), ".json")
        assert later.modified_ns > first.modified_ns
    assert not claims(root), "no beat may come after the release"


def wait_for_more(asked, count):
    before = len(asked)
    wait_for(lambda: len(asked) > before + count)


def test_a_job_that_lost_its_claim_is_told_and_leaves_the_new_owners_alone(root, monkeypatch):
    monkeypatch.setattr(locks, "BEAT_S", 0.001)
    asked, exists = list[str](), storage.exists
    monkeypatch.setattr(locks.storage, "exists", lambda uri: (exists(uri), asked.append(uri))[0])
    with locked(root, STAGE) as lock:
        while exists(lock.uri):
            storage.delete(lock.uri)  # as another does with one that is a minute old
            wait_for_more(asked, 2)  # a beat that was on its way has been written by then
        with locked(root, STAGE) as other:
            wait_for_more(asked, 6)  # both hearts beat on
            other.check()
            with pytest.raises(StageLocked, match="sent no heartbeat for 60 s, and another took over"):
                lock.check()
    assert not claims(root)


@pytest.fixture
def now(monkeypatch):
    """The time of this process, in a list."""
    found = [0.0]
    monkeypatch.setattr(locks, "clock", lambda: found[0])
    return found


def holds(lock):
    try:
        lock.check()
    except StageLocked:
        return False
    return True


def arrive(lock, monkeypatch):
    """Have a beat arrive that hung since its claim was seen: 51 s of a store's retries, after a rest of 10 s."""
    monkeypatch.setattr(locks, "list_files", list_files)  # the claim is young again
    with monkeypatch.context() as patch:
        patch.setattr(locks.storage, "exists", lambda uri: True)
        lock.beat()


@pytest.mark.parametrize("place", range(4))
def test_a_beat_that_arrives_after_its_claim_fell_lets_no_two_in(root, monkeypatch, aged, now, place):
    """It arrives before each step of the job that takes over, or after the last."""
    with locked(root, STAGE) as first:
        aged(first.uri, locks.STALE_S + 1)
        now[0] = locks.STALE_S + 1
        with taking_over(monkeypatch, {place: lambda: arrive(first, monkeypatch)}):
            try:
                with locked(root, STAGE) as second:
                    if place == 3:
                        arrive(first, monkeypatch)
                    assert [holds(first), holds(second)] == [False, True]
            except StageLocked:
                assert place < 2 and holds(first), "it arrived before the claims were listed"
    assert not claims(root)


@contextlib.contextmanager
def taking_over(monkeypatch, before):
    """Do something before steps that follow: a claim is written, all are listed, one that fell is deleted."""
    steps = itertools.count()

    def step(function):
        def taken(*arguments, **options):
            before.pop(next(steps), lambda: None)()
            return function(*arguments, **options)

        return taken

    with monkeypatch.context() as patch:
        for owner, name in ((locks, "_beat"), (locks, "list_files"), (locks.storage, "delete")):
            patch.setattr(owner, name, step(getattr(owner, name)))
        yield


def test_a_job_whose_store_was_away_for_long_goes_on_if_no_other_came(root, now):
    with locked(root, STAGE) as lock:
        now[0] = 3 * locks.STALE_S
        assert holds(lock)
        now[0] = 6 * locks.STALE_S
        lock.beat()
        assert holds(lock) and len(claims(root)) == 1


@pytest.fixture
def sleeps(now, monkeypatch):
    """Steps to do in the pauses that follow, each of which takes as long as it may by the fake clock."""
    steps, own, really = [], threading.get_ident(), time.sleep

    def sleep(seconds):
        if threading.get_ident() != own:  # a thread that an earlier test of this process left
            return really(seconds)
        now[0] += seconds
        if steps:
            steps.pop(0)()

    monkeypatch.setattr(locks.time, "sleep", sleep)
    monkeypatch.setattr(locks.random, "uniform", lambda low, high: high)
    return steps


def test_a_job_that_waited_for_long_keeps_its_lock_when_another_comes_by(root, child, now, sleeps):
    """The other's claim is there for a moment, at the first heartbeat after the wait."""
    theirs = write_claim(root, pid=child.pid)
    waits = int(2 * locks.STALE_S / locks.BEAT_S)
    sleeps += [lambda: None] * (len(locks.PAUSES_S) + waits) + [lambda: storage.delete(theirs)]
    with locked(root, STAGE, wait=True) as lock:
        assert now[0] > locks.STALE_S
        write_claim(root, pid=child.pid)
        lock.beat()
        assert holds(lock)


STEPS = ("list_files", "_beat", "delete")


class Turns:
    """Lets two threads take their steps at the store in a given order; when it has ended, as they come."""

    def __init__(self, order):
        self.order, self.changed = list(order), threading.Condition()
        self.ended, self.who = set(), threading.local()

    def step(self, function):
        def taken(*arguments, **options):
            me = getattr(self.who, "number", None)
            if me is None:  # not one of the two
                return function(*arguments, **options)
            with self.changed:
                self.changed.wait_for(lambda: not self.order or self.order[0] == me or self.order[0] in self.ended)
                if self.order and self.order[0] in self.ended:
                    self.order = [number for number in self.order if number not in self.ended]
                self.order = self.order[1:]
                result = function(*arguments, **options)
                self.changed.notify_all()
            return result

        return taken

    def end(self):
        with self.changed:
            self.ended.add(self.who.number)
            self.changed.notify_all()


@pytest.mark.parametrize("first", [0, 1])
def test_no_order_of_two_jobs_steps_lets_both_in(tmp_path, monkeypatch, first):
    """Every order of their first eight steps: a job that sleeps between any two of its own, however long."""

    def attempt(number, turns, root, outcome, leave):
        turns.who.number = number
        try:
            with locked(root, STAGE):
                outcome[number] = "held"
                turns.end()
                leave.wait(10)
        except StageLocked:
            outcome[number] = "refused"
        finally:
            turns.end()
            if outcome.get(number) != "held":
                leave.set()

    real = {name: getattr(locks, name) if hasattr(locks, name) else getattr(storage, name) for name in STEPS}
    for turn, rest in enumerate(itertools.product((0, 1), repeat=7)):
        turns, outcome, leave = Turns((first, *rest)), {}, threading.Event()
        monkeypatch.setattr(locks, "_beat", turns.step(real["_beat"]))
        monkeypatch.setattr(locks, "list_files", turns.step(real["list_files"]))
        monkeypatch.setattr(locks.storage, "delete", turns.step(real["delete"]))
        root = str(tmp_path / str(turn))
        threads = [threading.Thread(target=attempt, args=(n, turns, root, outcome, leave)) for n in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert sorted(outcome.values()) in (["held", "refused"], ["refused", "refused"]), (first, *rest)


def test_of_jobs_that_come_at_once_one_gets_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "PAUSES_S", (0.02, 0.05, 0.1, 0.2, 0.4, 0.8))

    def attempt(root):
        barrier.wait()
        try:
            with locked(root, STAGE):
                leave.wait()
        except StageLocked:
            leave.wait()
            return 0
        return 1

    barrier, leave = threading.Barrier(4), threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        for turn in range(5):
            assert sum(pool.map(attempt, [str(tmp_path / str(turn))] * 4)) == 1


def holder(root, *before):
    command = [*before, sys.executable, "-c", HOLDS_UNTIL_TOLD, root, STAGE]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_job_stopped_by_a_signal_holds_no_lock(root):
    with holder(root) as job:
        assert job.stdout.readline() == b"held\n"
        with pytest.raises(StageLocked, match=f"process {job.pid}"), locked(root, STAGE):
            pass
        job.send_signal(signal.SIGKILL)
        job.wait()
        assert len(claims(root)) == 1, "killed, it could not withdraw it"
        with locked(root, STAGE):
            pass


def test_a_living_job_in_another_namespace_of_processes_holds_its_lock(root, monkeypatch):
    """As in two containers of one host name: there its number is another, which may be nobody's or another's here."""
    apart = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces of processes may be made here")
    monkeypatch.setattr(locks, "BEAT_S", 0.1)
    with holder(root, *apart) as job:
        assert job.stdout.readline() == b"held\n"
        with pytest.raises(StageLocked, match=r"process 1\)"), locked(root, STAGE):
            pass
        job.communicate(b"\n")
    with locked(root, STAGE):
        pass
