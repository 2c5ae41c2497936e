# SPDX-License-Identifier: Apache-2.0
"""One rank of a training run: rank.py PLAN.json RANK. Writes a JSON line a step, its ledger, and a last line."""
import contextlib
import hashlib
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "entry_lib"), os.path.join(HERE, "..", "..", "plugin", "torch")]

import checkpoints  # noqa: E402
import forgive_torch  # noqa: E402
import masks  # noqa: E402
import models  # noqa: E402
from carrier import Timed  # noqa: E402
from collective import Collective, CollectiveError  # noqa: E402
from whole_files import keep_lines, named  # noqa: E402
from rank_ledger import RankLedger  # noqa: E402


class Rank:
    def __init__(self, plan, rank):
        self.plan, self.rank, self.ranks = plan, rank, plan["ranks"]
        self.path = os.path.join(plan["folder"], f"steps{rank}.jsonl")
        torch.set_num_threads(1)
        torch.manual_seed(plan["seed"])
        self.task = models.TASKS[plan["model"]](plan["seed"], plan["batch"])
        # Backward runs node by node in one order, so the same seed gives the same bits.
        torch.use_deterministic_algorithms(True)
        dist.init_process_group("gloo", init_method=f"tcp://{plan['meet'][0]}", rank=rank, world_size=self.ranks,
                                timeout=checkpoints.minutes(plan["limit_s"]))
        self.net = self.task.model()
        self.model = DistributedDataParallel(self.net, process_group=forgive_torch.gradient_group(),
                                             bucket_cap_mb=plan["bucket_mb"], broadcast_buffers=False)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=plan["rate"], momentum=0.9)
        self.carrier = self._carrier()
        self.scheduler = forgive_torch.StepScheduler(
            forgive_torch.Detector(**plan["detector"]), plugin=None if self._has_plugin() else False)
        if isinstance(self.carrier, masks.Masks):
            self.carrier.scheduler = self.scheduler
        self.hook = forgive_torch.register(self.model, scheduler=self.scheduler, carrier=self._carry)
        self.ledger = RankLedger(os.path.join(plan["folder"], f"ledger{rank}.csv")) if self._has_plugin() else None
        self.first = self.number = 0  # steps of this process

    def _has_plugin(self):
        return self.plan["plugin"] not in (None, "tcp")

    def _carrier(self):
        plan = self.plan
        if plan["masks"] is not None:
            return masks.Masks(plan["masks"], self.rank, self.ranks, plan["seed"])
        if plan["plugin"] is None:
            return Timed(forgive_torch.all_reduce_carrier)
        return Collective(plan["collective"], plan["plugin"], plan["algorithm"], self.rank, self.ranks,
                          plan["meet"][1], plan["limit_s"])

    def _carry(self, group, tensor):
        if self.plan["die"] == [self.rank, self.number]:
            os.kill(os.getpid(), signal.SIGKILL)  # the test of a rank that is lost in the middle of a step
        return self.carrier.carry(group, tensor)

    def train(self):
        """All steps from the newest checkpoint, or from the first."""
        restored = checkpoints.restore(self.plan, self.rank, self.net, self.optimizer, self.scheduler)
        keep_lines(self.path, lambda line: self._step_of(line) <= restored)
        if self.ledger is not None:
            self.ledger.begin_after(restored)
        self.first = restored + 1
        for self.number in range(self.first, self.plan["steps"] + 1):
            self._step()
            if self.plan["checkpoint_every"] and self.number % self.plan["checkpoint_every"] == 0:
                checkpoints.save(self.plan, self.rank, self.number, self.net, self.optimizer, self.scheduler)
        self._finish()

    @staticmethod
    def _step_of(line):
        """Of a line of this rank's file; the last line of a run, which will be made again, comes after all steps."""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return int(json.loads(line)["step"])
        return float("inf")

    def _write(self, line):
        with named(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _step(self):
        inputs, targets = self.task.draw(self.number, self.rank, self.ranks)
        carried, moved = self.carrier.seconds, self.carrier.bytes
        begin = time.monotonic()
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(inputs), targets)
        loss.backward()
        self.hook.finish()
        self.optimizer.step()
        line = {"step": self.number, "seconds": time.monotonic() - begin, "carried_s": self.carrier.seconds - carried,
                "bytes": self.carrier.bytes - moved, "loss": loss.item(), "norm": self.hook.last_norm,
                "critical": self.scheduler.critical, "parameters": self._digest()}
        if self.scheduler.budgeted:
            line["account"] = forgive_torch.step_stats(self.number)
        if self.ledger is not None:
            line["ledger"] = self.ledger.take()
        if self.number == self.first:
            line["fresh"] = True  # no step of this process came before: the plugin expects nothing
        if isinstance(self.carrier, masks.Masks):
            line["masked"] = self.carrier.take()
        if self.number % self.plan["evaluate_every"] == 0 or self.number in (1, self.plan["steps"]):
            line.update(self._evaluate())
        self._write(line)

    def _flat(self):
        return torch.cat([parameter.detach().flatten() for parameter in self.net.parameters()])

    def _digest(self):
        """The parameters, bit by bit: equal digests are equal parameters."""
        return hashlib.blake2b(self._flat().numpy(), digest_size=16).hexdigest()

    def _evaluate(self):
        """The task's metric on rank 0, and how far this rank's parameters are from rank 0's."""
        mine = self._flat()
        first = mine.clone()
        dist.broadcast(first, 0)
        found = {"distance": (mine - first).norm().item(), "length": first.norm().item()}
        if self.rank == 0:
            self.net.eval()
            found["metric"] = self.task.evaluate(self.net)
            self.net.train()
        dist.barrier()
        return found

    def _finish(self):
        bad_norms = self.scheduler.detector.stats()["bad_norms"]
        final = {"type": "final", "parameters": self._digest(), "bad_norms": bad_norms,
                 "refused": self.scheduler.refused[:10]}
        if self.ledger is not None:
            final["ledger"] = self.ledger.take()  # what came after the last step: nothing may
            final["stats"] = forgive_torch.stats()
        self._write(final)
        checkpoints.write_tensors(os.path.join(self.plan["folder"], f"parameters{self.rank}.pt"), self._flat())
        dist.barrier()
        self.carrier.close()
        dist.destroy_process_group()


def main(words):
    with open(words[0], encoding="utf-8") as file:
        plan = json.load(file)
    rank = int(words[1])
    try:
        Rank(plan, rank).train()
    except (CollectiveError, forgive_torch.ForgiveError, models.DataError, checkpoints.CheckpointError,
            RuntimeError, OSError) as error:
        named_file = isinstance(error, OSError) and error.filename
        text = f"{error.filename}: {error.strerror}" if named_file else (str(error).splitlines() or [repr(error)])[0]
        print(f"train: rank {rank}: {text}", file=sys.stderr, flush=True)
        os._exit(1)  # gloo's and the plugin's threads may be in calls that a lost rank never ends


if __name__ == "__main__":
    main(sys.argv[1:])
