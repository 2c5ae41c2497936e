# SPDX-License-Identifier: Apache-2.0
# Reads the plugin's statistics file (FORGIVE_STATS): totals, the account of each step, samples for the plots.
import dataclasses
import json

from errors import DemoError


@dataclasses.dataclass
class Sample:
    """The open step's account and the senders' rates at one moment."""

    time_s: float  # of CLOCK_MONOTONIC, as every rank on this machine sees it
    step: int
    received: int
    forgiven: int
    outstanding: int
    budget: int
    exhausted: bool
    rates: dict  # connection id -> (bit/s, exempt), of connections that send


@dataclasses.dataclass
class Statistics:
    """What one rank's transport says of one run."""

    totals: dict
    steps: dict    # step -> its account
    samples: list
    description: dict


def _sample(line):
    return Sample(line["time_ns"] / 1e9, line["step"] if line["open"] else 0, line["received"], line["forgiven"],
                  line["outstanding"], line["budget"], line["exhausted"],
                  {connection["id"]: (connection["rate_bps"], connection["exempt"])
                   for connection in line["connections"] if connection["sends"]})


def read(path):
    """Raises DemoError that names the file, if it is not there, not whole, or not what the plugin writes."""
    totals, steps, samples, description = None, {}, [], {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                line = json.loads(text)
                if line["type"] == "init":
                    description = line
                elif line["type"] == "sample":
                    samples.append(_sample(line))
                elif line["type"] == "step":
                    steps[line["step"]] = line
                    totals = line["totals"]
                elif line["type"] == "final":
                    totals = line["totals"]
    except OSError as error:
        raise DemoError(f"{path}: {error.strerror}: the plugin wrote no statistics") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DemoError(f"{path}: line {number} is not a line of the plugin's statistics ({error!r})") from error
    if totals is None:
        raise DemoError(f"{path}: no totals in it: the run ended too early")
    return Statistics(totals, steps, samples, description)
