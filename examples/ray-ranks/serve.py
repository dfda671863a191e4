"""One gpt2c-serve of several ranks, which Ray places: on one host or on several.

    python serve.py PLAN [--ranks=2] [--stages=1] [--cpus=1] [--port=8000] [-- FLAG...]

A placement group has a bundle for each rank, so that all of them start or none does, and an actor
in each starts gpt2c-serve with the variables that ranks find each other by. Rank 0 answers requests
at its node, the others follow it. Where one ends, all are ended.
"""
import argparse
import os
import socket
import subprocess

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote
class Rank:
    def __init__(self, number):
        self.number, self.process = number, None

    def address(self):
        """Of this node, and a port that is free there, at which rank 0 listens."""
        with socket.socket() as s:
            s.bind(("", 0))
            return ray.util.get_node_ip_address(), s.getsockname()[1]

    def run(self, command, variables):
        """Until the process ends: its exit code, and the end of what it said."""
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True,
                                        env=dict(os.environ, RANK=str(self.number), **variables))
        said = []
        for line in self.process.stderr:
            print(line, end="", flush=True)
            said = said[-20:] + [line]
        return self.process.wait(), "".join(said)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("plan", help="a path that every node has")
    parser.add_argument("--ranks", type=int, default=2, help="in all")
    parser.add_argument("--stages", type=int, default=1, help="one behind the other")
    parser.add_argument("--cpus", type=int, default=1, help="of each rank")
    parser.add_argument("--port", type=int, default=8000, help="of the server, at rank 0's node")
    parser.add_argument("flags", nargs="*", help="more flags of gpt2c-serve, behind --")
    o = parser.parse_args()

    ray.init(ignore_reinit_error=True)
    group = placement_group([{"CPU": o.cpus}] * o.ranks, strategy="PACK")
    ray.get(group.ready())
    # run() stays in its actor until the end; stop() is called beside it.
    actors = [Rank.options(num_cpus=o.cpus, max_concurrency=2,
                           scheduling_strategy=PlacementGroupSchedulingStrategy(
                               placement_group=group, placement_group_bundle_index=r)).remote(r)
              for r in range(o.ranks)]
    host, port = ray.get(actors[0].address.remote())
    variables = {"WORLD_SIZE": str(o.ranks), "MASTER_ADDR": host, "MASTER_PORT": str(port)}
    command = ["gpt2c-serve", os.path.abspath(o.plan), "--device=cpu", "--ranks=env",
               f"--pipeline-parallel={o.stages}", f"--threads={o.cpus}", f"--host={host}",
               f"--port={o.port}", *o.flags]
    runs = [a.run.remote(command, variables) for a in actors]
    print(f"http://{host}:{o.port}", flush=True)
    try:
        (ended,), _ = ray.wait(runs)  # ranks that lost another end by themselves, too
        code, said = ray.get(ended)
        raise SystemExit(f"rank {runs.index(ended)} ended with {code}: {said}" if code else 0)
    finally:
        ray.get([a.stop.remote() for a in actors])
        remove_placement_group(group)


if __name__ == "__main__":
    main()
