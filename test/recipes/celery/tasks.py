"""The program under test: an application of Celery with a queue and a few tasks."""

import os
import time

from celery import Celery

app = Celery("tasks", broker=os.environ["BROKER"])
app.conf.update(
    task_default_queue="work",
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"queue_name_prefix": "celery-", "wait_time_seconds": 1, "peek_lock_seconds": 10},
)


def write(line):
    with open(os.environ["FOLDER"] + "/done", "a") as file:
        file.write(line + "\n")


@app.task
def add(a, b):
    write(f"add {a + b}")


@app.task(bind=True, max_retries=3)
def fail(self):
    write(f"fail {self.request.retries}")
    raise self.retry(countdown=0.5)


@app.task
def slow():
    write("slow begins")
    time.sleep(3)
    write("slow ends")
