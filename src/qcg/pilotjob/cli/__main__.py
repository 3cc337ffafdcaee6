"""`python -m qcg.pilotjob.cli` is `qcg-pm`, of this very Python."""

from qcg.pilotjob.cli.main import main

main(prog_name="qcg-pm")
