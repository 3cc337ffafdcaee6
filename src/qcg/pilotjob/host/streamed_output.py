"""The pipes to which a job writes whose output goes to a stream."""

import os
from typing import List

from qcg.pilotjob.host.start_errors import NoCapacity
from qcg.pilotjob.host.stream_format import Opening


class StreamedOutput:
    """The pipes of one attempt."""

    __slots__ = ("is_over", "number", "opening", "readers", "stderr", "stdout", "store_by")

    def __init__(self, number: int, opening: Opening) -> None:
        """Raises NoCapacity when there are too many open files."""
        self.number = number
        self.opening = opening
        self.readers: List[int] = []
        self.stdout = self.stderr = -1
        """The ends for the job; -1 when the job was started."""
        self.is_over = False
        self.store_by = 0.0
        """When the end is recorded in any case, in monotonic seconds."""
        try:
            out, self.stdout = os.pipe()
            self.readers.append(out)
            err, self.stderr = os.pipe()
            self.readers.append(err)
        except OSError as error:
            self.close()
            raise NoCapacity("The pipes for its output cannot be made: %s." % error.strerror) from None

    def started(self) -> None:
        """The job has the writing ends."""
        for descriptor in (self.stdout, self.stderr):
            if descriptor >= 0:
                os.close(descriptor)
        self.stdout = self.stderr = -1

    def close(self) -> None:
        self.started()
        for descriptor in self.readers:
            os.close(descriptor)
        self.readers = []
