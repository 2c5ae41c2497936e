# SPDX-License-Identifier: Apache-2.0
"""DDP's buckets over the harness's all-reduce, and so over any ncclNet plugin: the shared library by ctypes."""
import ctypes
import time

import torch


class CollectiveError(RuntimeError):
    """The network, the plugin or another rank failed: one line."""


class Collective:
    """The all-reduce of one process; plugin "tcp" is the same algorithm over plain sockets."""

    def __init__(self, library, plugin, algorithm, rank, ranks, rendezvous, timeout_s):
        self._library = ctypes.CDLL(library)
        self._library.forgive_collective_create.restype = ctypes.c_void_p
        self._library.forgive_collective_create.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int,
                                                            ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
        self._library.forgive_collective_all_reduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        self._library.forgive_collective_destroy.argtypes = [ctypes.c_void_p]
        self._library.forgive_collective_error.restype = ctypes.c_char_p
        self.seconds = 0.0  # spent in all-reduces
        self.bytes = 0      # of the buckets that were summed
        self._handle = self._library.forgive_collective_create(plugin.encode(), algorithm.encode(), rank, ranks,
                                                               rendezvous.encode(), timeout_s)
        if not self._handle:
            raise CollectiveError(self._library.forgive_collective_error().decode())

    def carry(self, _, tensor):
        """A carrier for forgive_torch.register: sums in place and waits, so that the future is done."""
        if tensor.dtype != torch.float32 or not tensor.is_contiguous() or tensor.device.type != "cpu":
            raise CollectiveError(f"a bucket of {tensor.dtype} on {tensor.device}: float32 on the CPU is carried")
        begin = time.monotonic()
        if self._library.forgive_collective_all_reduce(self._handle, tensor.data_ptr(), tensor.numel()) != 0:
            raise CollectiveError(self._library.forgive_collective_error().decode())
        self.seconds += time.monotonic() - begin
        self.bytes += tensor.numel() * 4
        future = torch.futures.Future()
        future.set_result(tensor)
        return future

    def close(self):
        if self._handle:
            self._library.forgive_collective_destroy(self._handle)
            self._handle = None


class Timed:
    """A carrier that keeps the time of another one, waiting for each bucket as Collective does."""

    def __init__(self, carrier):
        self._carrier = carrier
        self.seconds = 0.0
        self.bytes = 0

    def carry(self, group, tensor):
        begin = time.monotonic()
        future = self._carrier(group, tensor)
        future.wait()
        self.seconds += time.monotonic() - begin
        self.bytes += tensor.numel() * 4
        return future

    def close(self):
        pass
