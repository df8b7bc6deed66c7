"""The web process without the rule that an older epoch never wins, to show what the rule is for."""

from inventory.soldout import Mark, Marks


def observe(self: Marks, sale_id: int, *, epoch: int, sold_out: bool, seen_at: float) -> bool:
    self._marks[sale_id] = Mark(epoch, sold_out, seen_at)
    return True


Marks.observe = observe  # type: ignore[method-assign]

from config.asgi import application  # noqa: E402

__all__ = ["application"]
