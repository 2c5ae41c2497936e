# SPDX-License-Identifier: Apache-2.0
"""What all carriers of DDP's buckets share: a bucket is summed in place, its time and bytes are kept, and it is done."""
import time

import torch


class Carrier:
    """Subclasses sum a bucket over the ranks, in place, in _sum."""

    def __init__(self):
        self.seconds = 0.0  # spent in sums
        self.bytes = 0      # of the buckets that were summed

    def carry(self, group, tensor):
        """A carrier for forgive_torch.register: waits for the sum, so that the future is done."""
        begin = time.monotonic()
        self._sum(group, tensor)
        self.seconds += time.monotonic() - begin
        self.bytes += tensor.numel() * tensor.element_size()
        future = torch.futures.Future()
        future.set_result(tensor)
        return future

    def _sum(self, group, tensor):
        raise NotImplementedError

    def close(self):
        """Ends what the carrier has open."""


class Timed(Carrier):
    """Another carrier, which sums in place, waited for."""

    def __init__(self, carrier):
        super().__init__()
        self._carrier = carrier

    def _sum(self, group, tensor):
        self._carrier(group, tensor).wait()
