"""`python -m qcg.pilotjob.cli` is `qcg-pm`, of this very Python."""

from qcg.pilotjob.cli.entrypoints import qcg_pm

qcg_pm()
