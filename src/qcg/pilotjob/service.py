"""Entry point of `python -m qcg.pilotjob.service`, the same as the command `qcg-pm-service`."""

from __future__ import annotations


def main() -> None:
    """Run the command `qcg-pm-service`."""
    from qcg.pilotjob.cli.entrypoints import qcg_pm_service

    qcg_pm_service()


if __name__ == "__main__":
    main()
