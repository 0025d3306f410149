import random
from collections import Counter

import pytest

from inference.plane.batcher import FairQueue, Job
from inference.plane.plans import Plan, Wire


def wire() -> Wire:
    return Wire(True, (), ())


WIRE = wire()


def job(tenant: str, rows: int = 1, of: Wire = WIRE) -> Job:
    one = Job(tenant, 0.0)
    one.carry(Plan(of, (), (), (), ()), rows, [], 1.0)
    return one


def tenants(batch: list[Job]) -> str:
    return "".join(one.tenant for one in batch)


def test_one_tenant_is_served_in_order_up_to_the_largest_batch() -> None:
    queue = FairQueue(4)
    jobs = [job("a") for _ in range(6)]
    for one in jobs:
        queue.add(one)
    assert queue.take() == jobs[:4]
    assert queue.take() == jobs[4:]
    assert queue.take() == [] and len(queue) == 0


def test_a_request_larger_than_what_is_left_waits_for_the_next_batch() -> None:
    queue = FairQueue(8)
    sizes = [5, 4, 1]
    for size in sizes:
        queue.add(job("a", size))
    assert [[one.rows for one in queue.take()] for _ in range(2)] == [[5], [4, 1]]


def test_a_flood_does_not_delay_another_tenants_single_request() -> None:
    queue = FairQueue(16)
    for _ in range(200):
        queue.add(job("flood"))
    queue.add(job("b"))
    assert "b" in tenants(queue.take()).replace("flood", "")


@pytest.mark.parametrize(("weights", "share"), [({}, 0.5), ({"a": 3}, 0.75), ({"b": 4}, 0.2)])
def test_backlogged_tenants_share_rows_by_weight(weights: dict[str, int], share: float) -> None:
    queue = FairQueue(16)
    queue.set_weights(weights)
    for _ in range(1000):
        queue.add(job("a"))
        queue.add(job("b"))
    served = Counter(one.tenant for _ in range(40) for one in queue.take())
    assert sum(served.values()) == 40 * 16
    assert served["a"] / (40 * 16) == pytest.approx(share, abs=0.03)


def test_shares_are_counted_in_rows_not_in_requests() -> None:
    queue = FairQueue(16)
    for _ in range(400):
        queue.add(job("wide", 8))
        for _ in range(8):
            queue.add(job("b"))
    rows: Counter[str] = Counter()
    for _ in range(60):
        for one in queue.take():
            rows[one.tenant] += one.rows
    assert rows["b"] / sum(rows.values()) == pytest.approx(0.5, abs=0.08)


def test_a_batch_is_full_whenever_enough_rows_wait() -> None:
    queue = FairQueue(32)
    for index in range(96):
        queue.add(job("abc"[index % 3]))
    assert [len(queue.take()) for _ in range(3)] == [32, 32, 32]


def test_a_tenant_with_other_shapes_is_neither_joined_nor_starved() -> None:
    queue, odd = FairQueue(8), wire()
    for _ in range(100):
        queue.add(job("a"))
        queue.add(job("b", of=odd))
    batches = [queue.take() for _ in range(20)]
    assert all(len({one.wire for one in batch}) == 1 for batch in batches)
    served = Counter(one.tenant for batch in batches for one in batch)
    assert served["b"] / sum(served.values()) == pytest.approx(0.5, abs=0.1)


def test_one_tenants_mixed_shapes_still_make_batches() -> None:
    queue, odd = FairQueue(8), wire()
    for index in range(16):
        queue.add(job("a", of=odd if index % 2 else WIRE))
    assert [len(queue.take()) for _ in range(2)] == [8, 8]


def test_a_large_request_gets_its_turn_among_many_small_ones() -> None:
    queue = FairQueue(8)
    big = job("big", 8)
    for _ in range(100):
        queue.add(job("small"))
    queue.add(big)
    position = next(index for index in range(20) if big in queue.take())
    assert position < 10


def test_jobs_put_back_come_first_and_those_marked_alone_run_alone() -> None:
    queue = FairQueue(8)
    first, second, later = job("a"), job("a"), job("a")
    queue.add(later)
    second.alone = True
    queue.put_back([first, second])
    assert [queue.take(), queue.take()] == [[second], [first, later]]


def test_removing_and_taking_in_any_order_loses_and_doubles_nobody() -> None:
    rng = random.Random(5)
    for _ in range(200):
        queue = FairQueue(rng.choice([1, 4, 16]))
        inside: set[Job] = set()
        out: set[Job] = set()
        wires = [wire(), wire()]
        for _ in range(rng.randrange(5, 80)):
            action = rng.random()
            if action < 0.55:
                one = job(rng.choice("abc"), rng.choice([1, 1, 2, 4]), rng.choice(wires))
                queue.add(one)
                inside.add(one)
            elif action < 0.7 and inside:
                gone = rng.choice(sorted(inside, key=id))
                queue.remove(gone)
                queue.remove(gone)
                inside.discard(gone)
            else:
                batch = queue.take()
                assert batch or not inside
                assert not out & set(batch) and set(batch) <= inside
                inside -= set(batch)
                if batch and rng.random() < 0.2:
                    for one in batch:
                        one.alone = rng.random() < 0.5
                    queue.put_back(batch)
                    inside |= set(batch)
                else:
                    out |= set(batch)
            assert len(queue) == len(inside) == len(set(queue))
