"""The tree of quotas: guaranteed, kept, lent and borrowed amounts."""

from job_tracker.scheduling.model import Flavor, Limit, Queue
from job_tracker.scheduling.quotas import QuotaRules, QuotaTree, quota_rules

FLAVORS = (Flavor(name="a100", capacity={"gpu": 64, "cpu": 640}),)
KIND = ("a100", "gpu")


def queue(name: str, parent: str = "", **limits: Limit) -> Queue:
    return Queue(name=name, parent=parent, limits={"a100": limits} if limits else {})


def gpus(nominal: int, borrow: int | None = None, lend: int | None = None) -> Limit:
    return Limit(nominal=nominal, borrow=borrow, lend=lend)


def rules(*queues: Queue) -> QuotaRules:
    return quota_rules({each.name: each for each in queues}, FLAVORS)


def most(tree: QuotaTree, name: str) -> int:
    """Return how many more GPUs a queue may use, at most 100."""
    return max(need for need in range(101) if tree.blocker(name, "a100", {"gpu": need}) is None)


def test_what_a_parent_is_guaranteed_includes_what_its_children_are() -> None:
    found = rules(
        queue("top", gpu=gpus(32, borrow=0)), queue("a", "top", gpu=gpus(8)), queue("b", "top", gpu=gpus(16))
    )

    assert found.guarantees["a100"]["top"] == {"gpu": 32}
    assert found.quota[KIND]["top"] == 32
    assert most(QuotaTree(found), "a") == 32


def test_a_parent_that_declares_nothing_is_guaranteed_the_sum_of_its_children() -> None:
    found = rules(queue("top"), queue("a", "top", gpu=gpus(8)), queue("b", "top", gpu=gpus(16)))

    assert found.guarantees["a100"]["top"] == {"gpu": 24}
    assert found.quota[KIND]["top"] == 24


def test_what_children_keep_for_themselves_is_not_shared_by_the_parent() -> None:
    tree = QuotaTree(
        rules(
            queue("top", gpu=gpus(32, borrow=0)),
            queue("a", "top", gpu=gpus(8, lend=2)),
            queue("b", "top", gpu=gpus(4)),
        )
    )

    assert most(tree, "b") == 26
    tree.use("b", "a100", {"gpu": 26})
    assert tree.blocker("b", "a100", {"gpu": 1}) == "top"
    assert most(tree, "a") == 6


def test_what_a_queue_deep_in_the_tree_keeps_is_free_for_it_whatever_others_use() -> None:
    tree = QuotaTree(rules(queue("top"), queue("a", "top", gpu=gpus(5, lend=0)), queue("other")))

    assert most(tree, "other") == 59
    tree.use("other", "a100", {"gpu": 59})
    assert tree.blocker("other", "a100", {"gpu": 1}) == ""
    assert most(tree, "a") == 5


def test_a_queue_borrows_no_more_than_it_may() -> None:
    tree = QuotaTree(rules(queue("a", gpu=gpus(8, borrow=4)), queue("b", gpu=gpus(16))))

    assert most(tree, "a") == 12
    tree.use("a", "a100", {"gpu": 10})
    assert tree.blocker("a", "a100", {"gpu": 3}) == "a"


def test_use_that_is_taken_back_leaves_nothing() -> None:
    tree = QuotaTree(rules(queue("top", gpu=gpus(8, borrow=0)), queue("a", "top", gpu=gpus(4, lend=1))))
    for amount in (2, 5):
        tree.use("a", "a100", {"gpu": amount})
    for amount in (5, 2):
        tree.use("a", "a100", {"gpu": amount}, sign=-1)

    assert most(tree, "a") == 8


def test_a_job_is_guaranteed_what_fits_in_the_rest_of_the_guarantee_of_a_node() -> None:
    tree = QuotaTree(rules(queue("top", gpu=gpus(16)), queue("a", "top", gpu=gpus(8)), queue("b", "top")))
    tree.use("a", "a100", {"gpu": 6})
    tree.use("b", "a100", {"gpu": 4})

    assert tree.is_guaranteed("a", "a100", {"gpu": 2, "cpu": 900}), "no quota is about cpu"
    assert not tree.is_guaranteed("a", "a100", {"gpu": 3})
    assert not tree.is_guaranteed("b", "a100", {"gpu": 1})
    assert tree.is_guaranteed("top", "a100", {"gpu": 6})
    assert not tree.is_guaranteed("top", "a100", {"gpu": 7})
    assert not tree.is_guaranteed("a", "a100", {"cpu": 1}), "nothing of what it needs is guaranteed"


def test_a_job_is_guaranteed_nothing_if_a_part_of_its_needs_is_not() -> None:
    tree = QuotaTree(rules(queue("a", gpu=gpus(8)), queue("b", cpu=gpus(100))))

    assert not tree.is_guaranteed("a", "a100", {"gpu": 2, "cpu": 1})
    assert tree.is_guaranteed("a", "a100", {"gpu": 2})


def test_a_resource_that_no_queue_limits_is_left_to_the_capacity() -> None:
    tree = QuotaTree(rules(queue("a", gpu=gpus(8))))

    assert tree.blocker("a", "a100", {"cpu": 10**9}) is None
    assert tree.blocker("a", "a100", {"gpu": 100}) is None
    assert tree.blocker("a", "spot", {"gpu": 100}) is None


def test_only_what_is_short_counts_as_borrowed() -> None:
    limits = {"default": {"cpu": Limit(nominal=2), "gpu": Limit(nominal=2)}}
    queues = {name: Queue(name=name, limits=limits) for name in "ab"}
    flavors = [Flavor(name="default", capacity={"cpu": 100, "gpu": 4})]
    used = QuotaTree(quota_rules(queues, flavors))
    used.use("a", "default", {"cpu": 5, "gpu": 2})
    used.use("b", "default", {"gpu": 2})
    assert not used.exceeds("a", "default", {"cpu": 1, "gpu": 1}), "cpu is free, and gpu is its own"
    assert used.exceeds("a", "default", {"cpu": 96, "gpu": 1}), "too little cpu is free"
    assert used.exceeds("a", "default", {"cpu": 1}), "enough is free, but perhaps not on one machine"


def test_a_queue_that_is_not_declared_is_at_the_top_without_limits() -> None:
    found = rules(queue("a", gpu=gpus(8, lend=0)), queue("lost", "gone"))

    assert found.path("unknown") == ("unknown", "")
    assert found.path("lost") == ("lost", "")
    assert most(QuotaTree(found), "unknown") == 56


def test_parents_that_form_a_cycle_end_at_the_root() -> None:
    found = rules(queue("a", "b", gpu=gpus(8)), queue("b", "a"))

    assert found.path("a") == ("a", "b", "")
    assert QuotaTree(found).blocker("a", "a100", {"gpu": 1}) is None


def test_the_rules_are_worked_out_once_for_a_tree() -> None:
    queues = {"a": queue("a", gpu=gpus(8))}

    assert quota_rules(queues, FLAVORS) is quota_rules(queues, list(FLAVORS))
    assert quota_rules(queues, FLAVORS[:0]) is not quota_rules(queues, FLAVORS)
    assert quota_rules(dict(queues), FLAVORS) is not quota_rules(queues, FLAVORS)
