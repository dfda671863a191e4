#!/usr/bin/env python3
"""Measures one batch of a PyTorch peer, while others like it compile beside it.

    peer-locked.py FILE SIZE MODE BATCH PROMPTS LOCK

FILE is a peer of bench-peers.py: it has graphed(size, type, batches, prompts, mode=..), which
compiles a decode step and a prefill of each prompt and prints a JSON line for each, and
timed(function, count), which it measures with. PROMPTS: lengths, or nothing. Who measures has the
file LOCK, so one at a time has the GPU but for what others launch to tune kernels.
"""
import fcntl
import importlib.util
import inspect
import sys


def main():
    file, size, mode, batch, prompts, lock = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("peer", file)
    peer = importlib.util.module_from_spec(spec)
    sys.modules["peer"] = peer
    spec.loader.exec_module(peer)
    torch, alone = peer.torch, peer.timed

    def timed(function, count):
        with open(lock, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            function()
            return alone(function, count)

    # As the peers' own main().
    torch.backends.cuda.matmul.allow_tf32 = False
    torch._inductor.config.coordinate_descent_tuning = True
    peer.timed = timed
    options = {"mode": mode}
    if "cache_len" in inspect.signature(peer.graphed).parameters:
        options["cache_len"] = 1024 if batch == "1" else 640
    peer.graphed(size, torch.float16, [int(batch)], [int(p) for p in prompts.split(",") if p],
                 **options)


if __name__ == "__main__":
    main()
