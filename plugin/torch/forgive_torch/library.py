# SPDX-License-Identifier: Apache-2.0
"""The plugin's library by ctypes: forgive.h's functions and structures, and errors as exceptions."""
from __future__ import annotations

import ctypes
import os
from typing import Optional

LIBRARY_NAME = "libnccl-net-forgive.so"

OK = 0
ERROR_NOT_STARTED = -1
ERROR_BAD_ARGUMENT = -2
ERROR_STEP_OPEN = -3
ERROR_RECEIVES_POSTED = -4
ERROR_LATCHED = -5
ERROR_NO_MEMORY = -7


class ForgiveError(RuntimeError):
    """One line: what is wrong, and the way out. `code` is forgive.h's, or 0."""

    def __init__(self, text: str, code: int = 0):
        super().__init__(text)
        self.code = code


class StepStats(ctypes.Structure):
    """forgive_step_stats_t."""

    _fields_ = [("step", ctypes.c_uint64), ("critical", ctypes.c_uint32), ("open", ctypes.c_uint32),
                ("p_ppm", ctypes.c_uint32), ("budget_unit", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64) for name in
        ("expected", "budget", "received", "forgiven", "outstanding", "contributions_lost", "trims", "settled",
         "budget_violations", "begin_ns", "end_ns")]


class Stats(ctypes.Structure):
    """forgive_stats_t; a library that knows fewer fields leaves the last ones zero."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "size", "api_version", "steps", "sent_bytes", "sent_exempt_bytes", "retransmitted_bytes", "received_bytes",
        "duplicate_bytes", "forgiven_bytes", "contributions_lost", "late_bytes", "packets_sent", "packets_received",
        "trims", "marks", "reports_sent", "reports_received", "decided_already_settled", "decided_not_forgivable",
        "decided_no_open_budget", "decided_not_vested", "decided_over_budget", "decided_draw_refused",
        "decided_forgiven", "rate_cuts_mark", "rate_cuts_trim", "rate_cuts_timeout", "signals_ignored", "timeouts",
        "lost_by_request", "lost_by_rack", "mode_changes", "bad_tag", "malformed", "unknown_connection", "replayed",
        "bad_crc", "out_of_window", "socket_drops", "not_posted_operator_latch", "budget_violations", "send_errors",
        "truncated", "raw_packets", "faults_injected", "stale_reports", "events_full",
        "proved_by_attributes", "proved_by_profiler", "proved_by_operators_word", "refused",
        "segment_cuts", "paths", "paths_given_up", "paths_returned", "rails")] + [
        (f"rail{rail}_{direction}_bytes", ctypes.c_uint64) for direction in ("sent", "received") for rail in range(4)]


class Range(ctypes.Structure):
    """forgive_range_t."""

    _fields_ = [("receive_comm", ctypes.c_uint64), ("connection_id", ctypes.c_uint64), ("step", ctypes.c_uint64),
                ("message", ctypes.c_uint32), ("offset", ctypes.c_uint32), ("length", ctypes.c_uint32),
                ("contributions", ctypes.c_uint32)]


class DetectorConfig(ctypes.Structure):
    """forgive_detector_config_t."""

    _fields_ = [("size", ctypes.c_uint64), ("kind", ctypes.c_uint32), ("layers", ctypes.c_uint32),
                ("window", ctypes.c_uint64), ("threshold", ctypes.c_double),
                ("steps", ctypes.POINTER(ctypes.c_uint64)), ("step_count", ctypes.c_uint64)]


class DetectorStats(ctypes.Structure):
    """forgive_detector_stats_t."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("size", "observed_steps", "windows", "bad_norms")]


_FUNCTIONS = {
    "forgive_last_error": (ctypes.c_char_p, []),
    "forgive_step_begin": (ctypes.c_int, [ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64]),
    "forgive_step_end": (ctypes.c_int, [ctypes.c_uint64]),
    "forgive_stats": (ctypes.c_int, [ctypes.POINTER(Stats)]),
    "forgive_step_stats": (ctypes.c_int, [ctypes.c_uint64, ctypes.POINTER(StepStats)]),
    "forgive_forgiven_ranges": (ctypes.c_int64, [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64]),
    "forgive_ledger_lost": (ctypes.c_uint64, []),
    "forgive_detector_create": (ctypes.c_void_p, [ctypes.POINTER(DetectorConfig)]),
    "forgive_detector_destroy": (None, [ctypes.c_void_p]),
    "forgive_detector_is_critical": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint64]),
    "forgive_detector_is_layer_critical": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint32]),
    "forgive_detector_observe": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_double),
                                                ctypes.c_uint64]),
    "forgive_detector_stats": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(DetectorStats)]),
    "forgive_detector_save": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64]),
    "forgive_detector_restore": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64]),
}

_loaded: dict[str, ctypes.CDLL] = {}


def find_library() -> str:
    """The library's absolute path: FORGIVE_LIBRARY if it is set, else the one in this package."""
    given = os.environ.get("FORGIVE_LIBRARY")
    path = given or os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", LIBRARY_NAME)
    if not os.path.isfile(path):
        raise ForgiveError(f"{path} is missing: " + (
            f"set FORGIVE_LIBRARY to a {LIBRARY_NAME}" if given else
            f"install the wheel, which holds it, or set FORGIVE_LIBRARY to a {LIBRARY_NAME}"))
    return os.path.realpath(path)


def load(path: Optional[str] = None) -> ctypes.CDLL:
    """The library, loaded once. NCCL opens the same file: both then share one engine and one account."""
    path = os.path.realpath(path) if path else find_library()
    if path not in _loaded:
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except OSError as error:
            raise ForgiveError(f"{path}: cannot be loaded: {error}") from error
        except AttributeError as error:
            raise ForgiveError(f"{path}: is no library of this version: {error}") from error
        _loaded[path] = library
    return _loaded[path]


def why_no_torch(error: Exception) -> str:
    """What an import of torch failed for: it is missing, or does not load."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return "not installed: pip install torch, or apt-get install python3-torch"
    return "installed, but does not load: " + (str(error).splitlines() or [type(error).__name__])[0]


def last_error(library: ctypes.CDLL) -> str:
    return str(library.forgive_last_error().decode())


def check(library: ctypes.CDLL, code: int) -> int:
    """Raises ForgiveError for a negative code."""
    if code < 0:
        raise ForgiveError(last_error(library), code)
    return code
