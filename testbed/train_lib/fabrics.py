# SPDX-License-Identifier: Apache-2.0
"""Where the ranks run: the lab's hosts behind the switch, or processes on loopback."""
import socket

from fabric import LabFabric


class TrainLab(LabFabric):
    """The lab, under a name of its own."""

    name = "train"

    def environment(self, rank):
        interface = self.status["hosts"][rank]["interface"]
        return {"FORGIVE_INTERFACE": "=" + interface, "GLOO_SOCKET_IFNAME": interface}

    def meeting_places(self):
        """For gloo and for the collectives; other ports in each run."""
        return [self.rendezvous(), self.rendezvous()]


class Loopback:
    """No fabric at all; --fault may trim packets in the plugin's receiver."""

    kind = "loopback"

    def __init__(self, fault):
        self.fault = fault

    def up(self):
        pass

    def down(self):
        pass

    def command(self, _, words):
        return words

    def environment(self, _):
        own = {"FORGIVE_INTERFACE": "=lo", "GLOO_SOCKET_IFNAME": "lo"}
        return own | ({"FORGIVE_FAULT": self.fault} if self.fault else {})

    def meeting_places(self):
        probes = [socket.socket(), socket.socket()]
        try:
            for probe in probes:
                probe.bind(("127.0.0.1", 0))
            return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
        finally:
            for probe in probes:
                probe.close()

    def start_bursts(self, _, __):
        return None

    def describe(self):
        return {"fault": self.fault}
