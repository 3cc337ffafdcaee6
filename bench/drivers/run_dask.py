"""Runs /bin/true from tasks of Dask: COUNT PARALLEL FOLDER. Prints the seconds from submission to the last end."""

import subprocess
import sys
import time
from pathlib import Path

from distributed import Client, LocalCluster


def true(path):
    with open(path, "wb") as output:
        return subprocess.run(["/bin/true"], stdout=output, check=True).returncode


def main():
    count, parallel, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    with (
        LocalCluster(n_workers=parallel, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(true, [str(folder / f"first{number}") for number in range(parallel)]))
        began = time.monotonic()
        client.gather(client.map(true, [str(folder / str(number)) for number in range(count)]))
        print(time.monotonic() - began)


if __name__ == "__main__":
    main()
