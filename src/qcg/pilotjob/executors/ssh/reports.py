"""What a host answers to a poll, decoded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.executors.base import NumberedRecord
from qcg.pilotjob.host.records import Ended, Running


def decoded(encoded: Any) -> list[NumberedRecord]:
    """The records of one ledger."""
    return list(msgspec.convert(encoded, list[protocol.WireRecord]))


def live_attempts(reply: Mapping[str, Any]) -> list[Running]:
    """The live attempts of a poll, without those that have ended while it was made."""
    ended = {
        record.body.id
        for encoded in reply.get("reports", {}).values()
        for record in decoded(encoded)
        if isinstance(record.body, Ended)
    }
    return [running for running in msgspec.convert(reply.get("live", []), list[Running]) if running.id not in ended]
