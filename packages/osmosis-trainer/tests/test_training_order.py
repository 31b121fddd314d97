"""Which rows a step trains on: every row once an epoch, the same for the same seed, whatever was done before."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from osmosis_trainer.loop.order import DataOrder, hold_out, permutation

orders = st.builds(
    DataOrder,
    rows=st.integers(1, 30).map(lambda n: tuple(range(100, 100 + n))),
    batch=st.integers(1, 40),
    epochs=st.integers(1, 4),
    seed=st.integers(0, 5),
)


@given(orders)
def test_every_row_comes_exactly_once_an_epoch(order):
    drawn = [row for step in range(order.steps) for row in order.step_rows(step)]
    assert len(drawn) == order.epochs * len(order.rows)
    for epoch in range(order.epochs):
        part = drawn[epoch * len(order.rows) : (epoch + 1) * len(order.rows)]
        assert sorted(part) == sorted(order.rows)


@given(orders)
def test_steps_are_full_but_for_the_last(order):
    sizes = [len(order.step_rows(step)) for step in range(order.steps)]
    assert all(size == order.size for size in sizes[:-1])
    assert 0 < sizes[-1] <= order.size
    with pytest.raises(IndexError):
        order.step_rows(order.steps)


@given(orders, st.data())
def test_a_step_depends_on_its_number_alone(order, data):
    step = data.draw(st.integers(0, order.steps - 1))
    expected = [order.step_rows(s) for s in range(order.steps)][step]
    again = DataOrder(order.rows, order.batch, order.epochs, order.seed)
    assert again.step_rows(step) == expected


@given(orders, st.data())
def test_refills_are_other_rows_each_once(order, data):
    step = data.draw(st.integers(0, order.steps - 1))
    spare = list(order.refill(step))
    assert Counter(spare).keys() == set(order.rows) - set(order.step_rows(step))
    assert len(spare) == len(set(spare))
    assert list(islice(order.refill(step), 3)) == spare[:3]


@given(st.integers(1, 60), st.data())
def test_held_out_rows_are_never_trained_on(total, data):
    count = data.draw(st.integers(0, total))
    kept, held = hold_out(total, count, seed=3)
    assert len(held) == count and sorted([*kept, *held]) == list(range(total))


def test_rows_fewer_than_a_batch_make_a_step_of_them_all():
    order = DataOrder((5, 6, 7), batch=32, epochs=2, seed=0)
    assert order.size == 3 and order.steps == 2
    assert sorted(order.step_rows(0)) == [5, 6, 7]


def test_the_seed_and_the_epoch_change_the_order():
    def drawn(seed: int) -> list[int]:
        order = DataOrder(tuple(range(50)), 50, 2, seed)
        return [*order.step_rows(0), *order.step_rows(1)]

    first = drawn(0)
    assert first[:50] != first[50:] and first != drawn(1) and first[:50] != list(range(50))


def test_the_permutation_is_the_same_on_every_machine():
    assert permutation(8, 12345) == (2, 6, 0, 3, 1, 5, 7, 4)
    assert permutation(0, 1) == ()
