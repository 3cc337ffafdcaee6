"""`python -m qcg.pilotjob.cli` is `qcg-pm`, of this very Python."""

from qcg.pilotjob.cli.entry import qcg_pm

qcg_pm()
