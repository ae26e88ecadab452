"""What every reader of an expression does first: follow it, stop where it turns in a circle or is changed elsewhere. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from kit.patch.follow import Followed, Follower, Place, Stuck
from kit.patch.uses import Uses

R = TypeVar("R")


class Evaluator(ABC, Generic[R]):
    """Evaluates expressions of one package to an ``R``, or says where it is stuck."""

    max_depth = 40

    def __init__(self, follower: Follower, uses: Uses) -> None:
        self.follower = follower
        self.uses = uses
        self._depth = 0

    def of(self, place: Place) -> R | Stuck:
        """What an expression is, followed to where it is written."""
        self._depth += 1
        try:
            if self._depth > self.max_depth:
                return Stuck("the expression leads to itself", (place,))
            followed = self.follower.follow(place)
            for hop in followed.hops:
                changed = self.uses.mutated(hop.binding) if hop.binding is not None else []
                if changed:
                    return Stuck(f"{hop.name} is also changed elsewhere", tuple(changed))
            if isinstance(followed.end, Stuck):
                return followed.end
            return self._at(place, followed)
        finally:
            self._depth -= 1

    @abstractmethod
    def _at(self, place: Place, followed: Followed) -> R | Stuck:
        """What stands at the end of the names, which is not :class:`Stuck`."""
