"""Runs /bin/true in HyperQueue: COUNT PARALLEL FOLDER. Prints the seconds from submission to the last output file.

Its client looks once a second whether all is done: that is not counted.
"""

import sys
import time
from pathlib import Path

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

count, parallel, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])


def job(number):
    made = Job(default_workdir=folder)
    for task in range(number):
        made.program(["/bin/true"], stdout=str(folder / str(task)), stderr=None)
    return made


with LocalCluster(str(folder / "server"), WorkerConfig(cores=parallel)) as cluster:
    client = cluster.client()
    client.wait_for_jobs([client.submit(job(parallel))])
    began = time.time()
    client.wait_for_jobs([client.submit(job(count))])
    print(max((folder / str(task)).stat().st_mtime for task in range(count)) - began)
