"""Entries expire a fixed time after they were put in."""

from osmosis_ai.rollout.utils.ttl_cache import TTLCache


def test_entries_expire_in_the_order_they_came():
    now = 0.0
    cache: TTLCache[str, int] = TTLCache(10, clock=lambda: now)
    cache.put("a", 1)
    now = 5
    cache.put("b", 2)
    assert (cache.get("a"), cache.get("b"), len(cache)) == (1, 2, 2)
    now = 10
    assert (cache.get("a"), cache.get("b")) == (None, 2)
    cache.put("b", 3)
    now = 19
    assert "b" in cache and list(cache) == ["b"]
    now = 20
    assert len(cache) == 0


def test_zero_keeps_nothing():
    cache: TTLCache[str, int] = TTLCache(0)
    cache.put("a", 1)
    assert cache.get("a") is None
    cache.put("b", 1)
    cache.discard("b")
    cache.clear()
    assert len(cache) == 0
