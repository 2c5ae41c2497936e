# SPDX-License-Identifier: Apache-2.0
# The fabric's parameters: their names, defaults as ratios of the bandwidth-delay product, limits, and the TOML file.
import dataclasses
import tomllib

TOPOLOGIES = ("star", "leaf-spine")
TRIM_MODES = ("full", "stale", "sai", "raw")

# Bytes a frame takes on the wire beyond its own length, as the switch's queue charges them.
WIRE_OVERHEAD_BYTES = 24
MTU_BYTES = 9000
# Without a delay line there is no product to take ratios of: the queues are then as for this round trip.
NOMINAL_RTT_MS = 5.0

# The seed's fabric, as ratios of its bandwidth-delay product (400 Gbit/s, 70 us: 3.5 MB).
ECN_MIN_RATIO = 0.23
ECN_MAX_RATIO = 0.91
TRIM_THRESHOLD_RATIO = 1.2
HEADER_QUEUE_RATIO = 0.5  # ours: the seed asks for a lossless one, this holds 1,700 cut packets at 400 Mbit/s, 5 ms


class LabError(Exception):
    """One line for the user: what is wrong with which thing, and the way out."""


def option(default, limits, text):
    return dataclasses.field(default=default, metadata={"limits": limits, "text": text})


@dataclasses.dataclass
class Parameters:
    """What `lab up` builds. None means: take the default that the bandwidth-delay product gives."""

    hosts: int = option(4, (1, 60), "hosts behind the switch")
    topology: str = option("star", TOPOLOGIES, "one switch, or leaves under spines that share each flow's way by ECMP")
    leaves: int = option(None, (2, 8), "leaf-spine: switches with hosts; the hosts are dealt to them in blocks (2)")
    spines: int = option(None, (1, 8), "leaf-spine: switches over the leaves, each with a link to every leaf (2)")
    rate_mbps: float = option(400.0, (1, 40000), "of every link, in Mbit/s")
    rtt_ms: float = option(5.0, (0, 2000), "round trip between two hosts, in ms; 0: no delay line")
    ecn_min_bytes: int = option(None, (0, 1 << 30), "queue at which marking begins (0.23 of the BDP)")
    ecn_max_bytes: int = option(None, (0, 1 << 30), "queue from which everything is marked (0.91 of the BDP)")
    ecn_probability: float = option(0.2, (0, 1), "of a mark just below ecn-max")
    trim_threshold_bytes: int = option(None, (1, 1 << 30), "queue beyond which packets are cut (1.2 of the BDP)")
    queue_bytes: int = option(None, (1, 1 << 30), "queue beyond which others are dropped (the trim threshold)")
    header_queue_bytes: int = option(None, (1, 1 << 30), "of cut and control packets (0.5 of the BDP)")
    header_share: float = option(0.25, (0.01, 0.99), "of the link, the most that cut and control packets may take")
    trim_length: int = option(128, (118, 9000), "bytes that are left of a frame, Ethernet header included")
    trim_mode: str = option("full", TRIM_MODES, "what is repaired in a cut packet")
    trim: bool = option(True, None, "false: the switch drops where it would cut")
    uplink_share: float = option(1.05, (0, 1000), "rate at which a host sends, of the link's; 0: unlimited")
    dscp_data: int = option(10, (0, 63), "of packets that may be cut")
    dscp_control: int = option(46, (0, 63), "of control packets")
    dscp_trimmed: int = option(11, (0, 63), "that a cut packet gets")
    line_frames: int = option(8192, (64, 131072), "that the delay line can hold")
    virtual_queue: bool = option(False, None, "decide by an imagined queue, as where the kernel hides the true one")

    @property
    def bdp_bytes(self):
        return int(self.rate_mbps * 1e6 / 8 * (self.rtt_ms or NOMINAL_RTT_MS) / 1e3)

    def with_defaults(self):
        """A copy in which nothing is None; raises LabError where the values contradict each other."""
        whole = dataclasses.replace(self)
        frame = MTU_BYTES + 14 + WIRE_OVERHEAD_BYTES

        def default(name, value):
            if getattr(whole, name) is None:
                setattr(whole, name, value)

        if whole.topology == "leaf-spine":
            default("leaves", 2)
            default("spines", 2)
            if whole.hosts < whole.leaves:
                raise LabError(f"hosts {whole.hosts} are fewer than leaves {whole.leaves}: each leaf needs one")
        elif whole.leaves is not None or whole.spines is not None:
            raise LabError("leaves and spines need topology leaf-spine")
        default("ecn_min_bytes", int(ECN_MIN_RATIO * whole.bdp_bytes))
        default("ecn_max_bytes", max(int(ECN_MAX_RATIO * whole.bdp_bytes), whole.ecn_min_bytes))
        default("trim_threshold_bytes", max(int(TRIM_THRESHOLD_RATIO * whole.bdp_bytes), 2 * frame))
        default("queue_bytes", whole.trim_threshold_bytes)
        default("header_queue_bytes", max(int(HEADER_QUEUE_RATIO * whole.bdp_bytes), 1 << 16))
        if whole.ecn_max_bytes < whole.ecn_min_bytes:
            raise LabError(f"ecn_max_bytes {whole.ecn_max_bytes} is below ecn_min_bytes {whole.ecn_min_bytes}")
        if len({whole.dscp_data, whole.dscp_control, whole.dscp_trimmed}) < 3:
            raise LabError("dscp_data, dscp_control and dscp_trimmed must be three different code points")
        return whole


FIELDS = {field.name: field for field in dataclasses.fields(Parameters)}


def checked(name, value, source):
    """The value in its field's type; raises LabError that names `source` (a flag, or a file and key)."""
    field = FIELDS[name]
    limits = field.metadata["limits"]
    if field.type is bool:
        if not isinstance(value, bool):
            raise LabError(f"{source} must be true or false, not {value!r}")
        return value
    if field.type is str:
        if value not in limits:
            raise LabError(f"{source} must be one of {', '.join(limits)}, not {value!r}")
        return value
    try:
        number = None if isinstance(value, str) else field.type(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, bool) or number != float(value) or not limits[0] <= number <= limits[1]:
        kind = "a whole number" if field.type is int else "a number"
        raise LabError(f"{source} must be {kind} from {limits[0]} to {limits[1]}, not {value!r}")
    return number


def read_table(path, table, variant):
    """[table] of a TOML file, overridden by [variant.table]; other tables are for other readers."""
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: not TOML: {error}") from error
    merged = dict(content.get(table, {}))
    if variant:
        if not isinstance(content.get(variant), dict):
            raise LabError(f"{path}: there is no variant '{variant}' in it")
        merged.update(content[variant].get(table, {}))
    return merged


def from_file(path, variant=None):
    """The keys of [lab], checked."""
    values = {}
    for key, value in read_table(path, "lab", variant).items():
        if key not in FIELDS:
            raise LabError(f"{path}: lab.{key} is not a parameter of the lab (`lab up --help` lists them)")
        values[key] = checked(key, value, f"{path}: lab.{key}")
    return values
