"""Runs /bin/true in Parsl: COUNT PARALLEL FOLDER. Prints the seconds from submission to the last end."""

import sys
import time
from pathlib import Path

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

count, parallel, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])


@parsl.bash_app
def true(stdout=None):
    return "exec /bin/true"


executor = HighThroughputExecutor(
    label="local",
    address="127.0.0.1",
    max_workers_per_node=parallel,
    encrypted=False,
    provider=LocalProvider(init_blocks=1, max_blocks=1),
)
config = Config(executors=[executor], run_dir=str(folder / "run"), initialize_logging=False, strategy="none")
with parsl.load(config):
    for future in [true(stdout=str(folder / f"first{number}")) for number in range(parallel)]:
        future.result()
    began = time.monotonic()
    for future in [true(stdout=str(folder / str(number))) for number in range(count)]:
        future.result()
    print(time.monotonic() - began)
