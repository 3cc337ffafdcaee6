"""The commands, one file each: `command` in `NAME.py` is `qcg-pm NAME`, `qcg-pm-service` or `qcg-pm-client`.

May import the modules beside it and every other package; `cli/main.py` and `cli/entrypoints.py` find it by name.
"""
