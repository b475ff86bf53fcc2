"""Tasks run once, later, and again when they fail or when their worker is killed."""

import json
import os
import subprocess
import sys
import time
import urllib.request

import pytest

import tasks


def lines():
    try:
        with open(os.environ["FOLDER"] + "/done") as file:
            return file.read().split("\n")[:-1]
    except FileNotFoundError:
        return []


def eventually(what, attempt, seconds=60):
    deadline = time.monotonic() + seconds
    while not attempt():
        assert time.monotonic() < deadline, f"{what}: {lines()}"
        time.sleep(0.1)


def counts():
    with urllib.request.urlopen(os.environ["ADMIN"] + "/v1/queues/celery-work", timeout=10) as answer:
        return json.load(answer)["counts"]


def start():
    return subprocess.Popen([sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "solo", "--without-mingle", "--without-gossip", "-l", "warning"])


@pytest.fixture
def worker():
    process = start()
    yield process
    process.kill()
    process.wait()


def emptied():
    return counts()["active"] == 0 and counts()["locked"] == 0


def test_tasks_run_once(worker):
    for i in range(20):
        tasks.add.delay(i, 100)
    eventually("all sums", lambda: len([line for line in lines() if line.startswith("add ")]) >= 20)
    eventually("the queue is empty", emptied)
    assert sorted(line for line in lines() if line.startswith("add ")) == sorted(f"add {i + 100}" for i in range(20))


def test_a_task_runs_later(worker):
    began = time.monotonic()
    tasks.add.apply_async((1000, 1), countdown=4)
    eventually("the sum", lambda: "add 1001" in lines())
    assert time.monotonic() - began >= 4
    eventually("the queue is empty", emptied)


def test_a_task_that_fails_is_retried(worker):
    tasks.fail.delay()
    eventually("all attempts", lambda: "fail 3" in lines())
    assert [line for line in lines() if line.startswith("fail")] == [f"fail {i}" for i in range(4)]
    eventually("the queue is empty", emptied)


def test_a_task_whose_worker_is_killed_runs_again():
    first = start()
    try:
        tasks.slow.delay()
        eventually("the task begins", lambda: "slow begins" in lines())
    finally:
        first.kill()
        first.wait()
    second = start()
    try:
        eventually("the task ends", lambda: "slow ends" in lines())
        assert lines().count("slow begins") == 2
        eventually("the queue is empty", emptied)
    finally:
        second.kill()
        second.wait()
