"""A program on one core."""

from __future__ import annotations

from typing import Any

from qcg.pilotjob.executor_api.templates.qcgpj_template import QCGPJTemplate


class BasicTemplate(QCGPJTemplate):
    """`name` and `exec` must be given; `args`, `stdout` and `stderr` may be."""

    @staticmethod
    def template() -> tuple[str, dict[str, Any]]:
        text = """
            {
                'name': '${name}',
                'execution': {
                    'exec': '${exec}',
                    'args': ${args},
                    'stdout': '${stdout}',
                    'stderr': '${stderr}'
                }
            }
        """
        return text, {"args": [], "stdout": "stdout", "stderr": "stderr"}
