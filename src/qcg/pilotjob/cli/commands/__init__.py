"""The commands, one file each: `command` in `NAME.py` is `qcg-pm NAME`, `qcg-pm-service` or `qcg-pm-client`."""
