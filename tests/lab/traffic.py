#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Paced FORGIVE data packets from one host to another, and a receiver that sees them as the wire brings them.
#
#   traffic.py send ADDRESS COUNT RATE_MBPS CONNECTION [DSCP]   says "ready", sends after a line came, prints how many
#   traffic.py receive                                          says "ready", reads how many to wait for, prints JSON
import ctypes
import json
import select
import socket
import struct
import sys
import time

PORT = 17185
PAYLOAD_BYTES = 4096
HEADER = struct.Struct("!BBHHHQQIIIIIIQ")  # forgive_data_header
UNIT_BYTES = 16
ECT0 = 2
ETH_P_ALL = 3


def data_header(connection, number, payload_bytes=PAYLOAD_BYTES):
    offset = number * payload_bytes
    return HEADER.pack(1, 1, 0, payload_bytes, 0, connection, offset, number // 256, offset % (256 * payload_bytes),
                       256 * payload_bytes, number, 0, 0, 0)


def send(address, count, rate_mbps, connection, dscp=10):
    """Sends `count` packets at an even pace; what the host is late by it catches up 2 ms of at most."""
    version6 = ":" in address
    sender = socket.socket(socket.AF_INET6 if version6 else socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    if version6:
        sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2 | ECT0)
    else:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2 | ECT0)
    sender.connect((address, PORT))
    payload = bytes(PAYLOAD_BYTES)
    print("ready", flush=True)
    sys.stdin.readline()
    interval = (HEADER.size + PAYLOAD_BYTES) * 8 / (rate_mbps * 1e6)
    next_time = time.monotonic()
    for number in range(count):
        now = time.monotonic()
        if now < next_time:
            time.sleep(next_time - now)
        next_time = max(next_time, now - 0.002) + interval
        sender.send(data_header(connection, number) + payload)
    print(count)


def internet_checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


class Tally:
    """What came to our port, frame by frame."""

    def __init__(self):
        self.result = {"whole": 0, "cut": 0, "marked": 0, "ranges": [], "shapes": {}}

    def add(self, frame):
        kind, = struct.unpack_from("!H", frame, 12)
        if kind == 0x0800:
            header_end, protocol, tos = 34, frame[23], frame[15]
            ip_length, = struct.unpack_from("!H", frame, 16)
            ip_good = internet_checksum(frame[14:34]) == 0xffff
        elif kind == 0x86dd:
            header_end, protocol = 54, frame[20]
            tos = struct.unpack_from("!H", frame, 14)[0] >> 4 & 0xff
            ip_length = struct.unpack_from("!H", frame, 18)[0] + 40
            ip_good = True
        else:
            return False
        if protocol != 17:
            return False
        _, port, udp_length, checksum = struct.unpack_from("!HHHH", frame, header_end)
        if port != PORT:
            return False
        header = HEADER.unpack_from(frame, header_end + 8)
        announced = header_end + 8 + HEADER.size + header[3]
        if tos & 3 == 3:
            self.result["marked"] += 1
        if len(frame) >= announced:
            self.result["whole"] += 1
            return True
        self.result["cut"] += 1
        self.result["ranges"].append(f"{header[5]:016x} {header[7]} {header[8]} {header[3]}")
        shape = (f"frame {len(frame)} ip {ip_length} ip_good {int(ip_good)} udp {udp_length} "
                 f"checksum {'zero' if checksum == 0 else 'kept'} dscp {tos >> 2}")
        self.result["shapes"][shape] = self.result["shapes"].get(shape, 0) + 1
        return True


class Arrivals:
    """Reads sockets until as many packets came as standard input says, and shows whether more come than that. A packet
    that does not come is given up after half a minute of silence: nobody may judge by a shorter one, on a machine that
    may stand still."""

    def __init__(self, sockets, count):
        """count(socket) takes a packet of a socket that is ready, and returns whether it counts."""
        self.sockets, self.count, self.seen, self.wanted = sockets, count, 0, None

    def _take(self, patience_s):
        asked = [] if self.wanted is not None else [sys.stdin]
        ready = select.select([*self.sockets, *asked], [], [], patience_s)[0]
        if sys.stdin in ready:
            self.wanted = int(sys.stdin.readline())
        self.seen += sum(self.count(one) for one in ready if one is not sys.stdin)
        return bool(ready)

    def run(self):
        print("ready", flush=True)
        while self.wanted is None or self.seen < self.wanted:
            if not self._take(30) and self.wanted is not None:
                return
        while self._take(0.3):
            pass


def receive():
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    tap.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE
    tap.bind(("fgv0", ETH_P_ALL))
    # A socket that takes the packets, so that the host answers none with an ICMP error. It needs no reader.
    for family, anything in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        taker = socket.socket(family, socket.SOCK_DGRAM)
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            taker.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taker.bind((anything, PORT))
        globals().setdefault("_takers", []).append(taker)
    tally = Tally()
    frame = bytearray(16384)

    def count(_):
        length, address = tap.recvfrom_into(frame)
        return address[2] != socket.PACKET_OUTGOING and tally.add(bytes(frame[:length]))

    Arrivals([tap], count).run()
    # Frames that this very socket had no room for would look lost.
    statistics = tap.getsockopt(263, 6, ctypes.sizeof(ctypes.c_uint) * 2)  # SOL_PACKET, PACKET_STATISTICS
    tally.result["tap_dropped"] = struct.unpack("II", statistics)[1]
    print(json.dumps(tally.result))


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5], 16),
             int(sys.argv[6]) if len(sys.argv) > 6 else 10)
    else:
        receive()
