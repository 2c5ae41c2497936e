# SPDX-License-Identifier: Apache-2.0
# One run: a forgive_perf on each host, bursts beside them, and what all of them have counted.
import os
import shutil

import perf_output
import statistics_file
from errors import DemoError

PERF = os.path.join("testbed", "perf", "forgive_perf")
PLUGIN = os.path.join("plugin", "libnccl-net-forgive.so")
# The ranks go before whatever else the machine does, so that the policies are compared and not its other work.
NICENESS = -15
# Variables that must not reach the runs from the caller's environment: the same for every policy, or it is no
# comparison.
FOREIGN = ("FORGIVE_", "NCCL_")


class Runner:
    """Runs of one demo, on whatever fabric is up."""

    def __init__(self, processes, parameters, folder, build):
        self.processes = processes
        self.parameters = parameters
        self.folder = folder
        self.perf = os.path.join(build, PERF)
        self.plugin = os.path.join(build, PLUGIN)
        self.counted = None  # (fabric, its counters after its last run)
        for program in (self.perf, self.plugin):
            if not os.path.exists(program):
                raise DemoError(f"{program} is missing: build it by `testbed/setup`")

    def _environment(self, run, fabric, rank, folder):
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        if run.policy == "tcp":
            return own
        own.update(self.parameters.environment_of(run.policy, run.algorithm))
        own.update(fabric.environment(rank))
        own["FORGIVE_SEED"] = str(self.parameters.run["seed"] * 1000 + run.turn * 100 + rank)
        own["FORGIVE_STATS"] = os.path.join(folder, f"statistics{rank}.jsonl").replace("%", "%%")
        if run.traced:
            own["FORGIVE_TRACE_INTERVAL_US"] = str(self.parameters.run["trace_interval_us"])
        return own

    def _command(self, run, rendezvous, rank, folder):
        values = self.parameters.run
        words = [self.perf, "--plugin", "tcp" if run.policy == "tcp" else self.plugin, "--algorithm", run.algorithm,
                 "--steps", str(values["steps"]), "--critical", ",".join(map(str, self.parameters.critical)),
                 "--compute-ms", str(values["compute_ms"]), "--bytes", str(values["bytes"]),
                 "--rank", str(rank), "--world", str(values["ranks"]), "--rendezvous",
                 rendezvous, "--timeout", str(values["run_limit_s"]), "--seed", str(values["seed"])]
        if not self.parameters.critical:
            del words[words.index("--critical"):words.index("--critical") + 2]
        if rank == 0:
            words += ["--json", os.path.join(folder, "result.json")]
        return words

    def run(self, run, fabric):
        """Returns its RunResult. Raises Interrupted; DemoError with forgive_perf's own words where it failed."""
        folder = os.path.join(self.folder, run.label)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        before = self._counters_before(fabric)
        limit = self.parameters.run["run_limit_s"]
        bursts = fabric.start_bursts(self.parameters.run["seed"] + run.turn, limit + 5)
        rendezvous = fabric.rendezvous()
        ranks = []
        try:
            for rank in range(self.parameters.run["ranks"]):
                words = self._command(run, rendezvous, rank, folder)
                if run.policy != "tcp":
                    words += ["--trims", fabric.trims_log]
                ranks.append(self.processes.start(fabric.command(rank, words),
                                                  self._environment(run, fabric, rank, folder),
                                                  os.path.join(folder, f"rank{rank}.log"), niceness=NICENESS))
            well = self.processes.wait(ranks, limit)
        finally:
            self.processes.end(ranks + ([bursts] if bursts else []))
        if not well and not os.path.exists(os.path.join(folder, "result.json")):
            raise DemoError(f"{run.label}: {self._complaint(folder, limit)}")
        return self._collect(run, fabric, folder, before, well)

    def _counters_before(self, fabric):
        """What the last run on this fabric left: nothing that is counted happens between runs."""
        if self.counted is not None and self.counted[0] is fabric:
            return self.counted[1]
        return fabric.counters()

    def _collect(self, run, fabric, folder, before, well):
        after = fabric.counters()
        self.counted = (fabric, after)
        switch = {name: after[name] - before.get(name, 0) for name in after}
        content = perf_output.read(os.path.join(folder, "result.json"))
        result = perf_output.to_result(run, content, switch, self.parameters.steps)
        if not well and not result.counters["wrong"] and not result.counters["budget_violations"]:
            result.faults.append(self._complaint(folder, self.parameters.run["run_limit_s"]))
        if run.traced:
            rank = 1 if self.parameters.run["ranks"] > 1 else 0
            result.trace = statistics_file.read(os.path.join(folder, f"statistics{rank}.jsonl"))
        return result

    def _complaint(self, folder, limit):
        """The first words of a rank that tell why it failed."""
        for rank in range(self.parameters.run["ranks"]):
            try:
                with open(os.path.join(folder, f"rank{rank}.log"), encoding="utf-8", errors="replace") as file:
                    lines = [line.strip() for line in file if line.startswith("forgive_perf:")]
            except OSError:
                continue
            if lines:
                return lines[-1]
        return f"not done within {limit} s; what the ranks said is in {folder}"


def discard(folder):
    """Removes what the runs wrote."""
    shutil.rmtree(folder, ignore_errors=True)
