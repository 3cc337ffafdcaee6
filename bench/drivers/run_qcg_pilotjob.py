"""Runs /bin/true in QCG-PilotJob 0.14: COUNT PARALLEL FOLDER. Prints the seconds from submission to the last end."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

count, parallel, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

execution = {"exec": "/bin/true", "stdout": "${jname}.out"}
jobs = [{"name": f"job{number}", "execution": execution} for number in range(count)]
requests = folder / "requests.json"
requests.write_text(
    json.dumps([{"request": "submit", "jobs": jobs}, {"request": "control", "command": "finishAfterAllTasksDone"}])
)
service = [sys.executable, "-m", "qcg.pilotjob.service", "--file-path", str(requests), "--wd", str(folder)]
service += ["--nodes", str(parallel), "--report-format", "json", "--log", "warning"]
subprocess.run(service, check=True, stdout=subprocess.DEVNULL)
[report] = folder.glob(".qcgpjm-service-*/jobs.report")
histories = [json.loads(line)["history"] for line in report.read_text().splitlines()]
if len(histories) != count:
    sys.exit(f"{len(histories)} of {count} jobs were reported")
times = [datetime.fromisoformat(step["date"]) for history in histories for step in history]
print((max(times) - min(times)).total_seconds())
