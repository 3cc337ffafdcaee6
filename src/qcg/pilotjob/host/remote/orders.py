"""Orders for the supervisor of another login host, which this host cannot reach: lines in `.service/HOST.orders`."""

import contextlib
import json
from typing import Any, Dict, List

from qcg.pilotjob.host.remote.errors import os_error
from qcg.pilotjob.host.remote.files import append_lines
from qcg.pilotjob.host.remote.layout import Layout

SUFFIX = ".orders"


class Orders:
    """The orders for one supervisor, which reads each of them once."""

    def __init__(self, layout: Layout, host: str) -> None:
        self._path = layout.of_host(SUFFIX, host)
        self._offset = 0

    def give(self, order: Dict[str, Any]) -> None:
        try:
            append_lines(self._path, (json.dumps(order) + "\n").encode("ascii"))
        except OSError as error:
            raise os_error("The order cannot be left for another login host", error) from None

    def take(self) -> List[Dict[str, Any]]:
        """The orders since the last call. A new supervisor takes all again: orders for ended jobs have no effect."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content.rfind(b"\n") + 1
        self._offset += whole
        lines = content[:whole].splitlines()
        orders = []
        for line in lines:
            with contextlib.suppress(ValueError):
                order = json.loads(line.decode("ascii", "replace"))
                if isinstance(order, dict):
                    orders.append(order)
        return orders
