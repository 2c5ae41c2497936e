# SPDX-License-Identifier: Apache-2.0
"""DDP's buckets over the harness's all-reduce, and so over any ncclNet plugin: the shared library by ctypes."""
import ctypes

import torch

from carrier import Carrier


class CollectiveError(RuntimeError):
    """The network, the plugin or another rank failed: one line."""


class Collective(Carrier):
    """The all-reduce of one process; plugin "tcp" is the same algorithm over plain sockets."""

    def __init__(self, library, plugin, algorithm, rank, ranks, rendezvous, timeout_s):
        super().__init__()
        self._library = ctypes.CDLL(library)
        self._library.forgive_collective_create.restype = ctypes.c_void_p
        self._library.forgive_collective_create.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int,
                                                            ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
        self._library.forgive_collective_all_reduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        self._library.forgive_collective_destroy.argtypes = [ctypes.c_void_p]
        self._library.forgive_collective_error.restype = ctypes.c_char_p
        self._handle = self._library.forgive_collective_create(plugin.encode(), algorithm.encode(), rank, ranks,
                                                               rendezvous.encode(), timeout_s)
        if not self._handle:
            raise CollectiveError(self._library.forgive_collective_error().decode())

    def _sum(self, _, tensor):
        if tensor.dtype != torch.float32 or not tensor.is_contiguous() or tensor.device.type != "cpu":
            raise CollectiveError(f"a bucket of {tensor.dtype} on {tensor.device}: float32 on the CPU is carried")
        if self._library.forgive_collective_all_reduce(self._handle, tensor.data_ptr(), tensor.numel()) != 0:
            raise CollectiveError(self._library.forgive_collective_error().decode())

    def close(self):
        if self._handle:
            self._library.forgive_collective_destroy(self._handle)
            self._handle = None
