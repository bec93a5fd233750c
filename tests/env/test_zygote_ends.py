"""The zygote outlives its workers: a signal about one that ends, at whatever moment, costs no other its life."""

from __future__ import annotations

from awm.env import Limits, Sandbox


def test_workers_that_end_in_numbers_take_no_other_along():
    with Sandbox(Limits(memory_mb=256)) as sandbox:
        bystander = sandbox.worker()
        for _ in range(250):
            ending = [sandbox.worker() for _ in range(4)]
            for worker in ending:
                worker.kill()
            assert bystander.alive
