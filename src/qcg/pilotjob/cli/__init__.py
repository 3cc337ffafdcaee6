"""The command line: one file a command in `commands/`, helpers beside it.

May import every other package; only `qcg.pilotjob.service` imports it.
"""
