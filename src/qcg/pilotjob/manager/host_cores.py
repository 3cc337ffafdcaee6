"""The cores of this host that a run uses: claimed for it alone, or shared with other runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.manager.core_claims import Claim, Claims, ClaimsError
from qcg.pilotjob.manager.placement import Placement, without_system_core

log = logging.getLogger(__name__)


class HostCores:
    """The claim of a run on cores of this host, until `release`. Virtual nodes and allocations need no claim."""

    def __init__(self, placement: Placement, options: Options, run_dir: Path) -> None:
        self.notices: list[str] = []
        """Sentences for the user about other runs on these cores."""
        self._run_dir = run_dir
        self._claims: Claims | None = None
        if placement.bindings and not options.pretend:
            placement = self._claim(placement, options)
        self.placement = without_system_core(placement) if options.system_core else placement

    def set_agent(self, pid: int) -> None:
        """The agent of the run: jobs may run on the claimed cores while it lives."""
        if self._claims is not None:
            self._change(lambda claims: claims.set_agent(self._run_dir, pid))

    def refresh(self) -> None:
        """Keep the claim of a long run from being cleaned up as an old temporary file."""
        if self._claims is not None:
            self._claims.touch()

    def release(self) -> None:
        """Leave the cores to others, unless an agent with jobs is left."""
        if self._claims is not None:
            self._change(lambda claims: claims.release(self._run_dir))
            self._claims = None

    def _change(self, change: Callable[[Claims], None]) -> None:
        assert self._claims is not None
        try:
            change(self._claims)
        except ClaimsError as error:
            log.warning("the claim on cores of this host cannot be changed: %s", error)

    def _claim(self, placement: Placement, options: Options) -> Placement:
        (node,) = placement.specs
        claims = Claims()
        try:
            mine, others = claims.claim(self._run_dir, list(node.cores), shared=options.share_cores)
        except ClaimsError as error:
            self.notices.append(
                f"The cores of this host cannot be claimed ({error}): other runs may bind their jobs to the same cores."
            )
            return placement
        if mine:
            self._claims = claims
        return self._reduced(placement, options, mine, others) if others else placement

    def _reduced(self, placement: Placement, options: Options, mine: list[int], others: list[Claim]) -> Placement:
        """The placement without the cores of other runs, or with all cores and no binding when none is left."""
        (node,) = placement.specs
        runs = ", ".join(map(str, others))
        if options.share_cores:
            shared = {core for claim in others for core in claim.cores}.intersection(node.cores)
            self.notices.append(
                f"{len(shared)} of {_cores(node)} of this host are shared with {runs}: jobs of these runs are bound to"
                " the same cores (--share-cores)."
            )
            return placement
        if len(mine) <= options.system_core:
            self.release()
            self.notices.append(
                f"All {_cores(node)} of this host are in use by {runs}: this run shares them, and its jobs are not"
                " bound to cores. With --share-cores they are bound nevertheless."
            )
            return msgspec.structs.replace(placement, bindings={})
        self.notices.append(
            f"This run uses {len(mine)} of the {_cores(node)} of this host: the others are in use by {runs}. With"
            " --share-cores or --no-bind it uses all of them."
        )
        spec = msgspec.structs.replace(node, cores=tuple(mine), claimed=len(node.cores) - len(mine))
        return msgspec.structs.replace(placement, specs=[spec], bindings={spec.name: {core: core for core in mine}})


def _cores(node: NodeSpec) -> str:
    return pluralize(len(node.cores), "core")
