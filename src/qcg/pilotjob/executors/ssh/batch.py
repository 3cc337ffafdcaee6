"""The batch system of a remote host, as `remote-init` describes it to the host."""

from __future__ import annotations

from typing import Any

import msgspec

from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.executors.ssh.config import HostConfig, HostsError


def batch_record(config: HostConfig) -> dict[str, Any] | None:
    """The commands of the host's batch system, with the intervals of `hosts.toml`; None for jobs in the background.

    Raises: `HostsError` for a batch system that remote hosts cannot use.
    """
    if not config.is_batch:
        return None
    queue = batch_system(config.batch).remote_queue()
    if queue is None:
        raise HostsError(
            f"{config.source}: [{config.name}]: batch = {config.batch!r} is not for remote hosts; choose another batch"
            " system, or leave it out to run jobs in the background"
        )
    queue = msgspec.structs.replace(
        queue, submit_poll_interval=config.submit_poll_interval, poll_interval=config.poll_interval
    )
    record: dict[str, Any] = msgspec.to_builtins(queue)
    return record
