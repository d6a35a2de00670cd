"""Calls of modules, followed without anything in the modules: hooks would be copied and saved."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

Before = Callable[[tuple[Any, ...], dict[str, Any]], None]
After = Callable[[tuple[Any, ...], Any], None]


@dataclass(frozen=True, eq=False)
class _Follower:
    before: Before | None
    after: After | None


class Everyone(Protocol):
    """Follows the calls of all modules; what it returns is called when the call ends."""

    def __call__(self, module: nn.Module) -> Callable[[], None] | None: ...


_followers: dict[int, tuple[_Follower, ...]] = {}  # by the id of the module
_of_all: tuple[Everyone, ...] = ()
_lock = threading.Lock()
_original: Callable[..., Any] | None = None  # nn.Module.__call__, while `_call` stands for it


def follow(
    module: nn.Module, *, before: Before | None = None, after: After | None = None
) -> Callable[[], None]:
    """Follow the calls of one module; returns the function that ends it.

    A copy of the module is another module, and is not followed. The caller keeps the module alive.

    before: called with the arguments of each call. after: with its positional arguments and its
    output, which is None after an error.
    """
    follower = _Follower(before, after)
    with _lock:
        _followers[id(module)] = (*_followers.get(id(module), ()), follower)
        _stand_in()

    def end() -> None:
        with _lock:
            rest = tuple(one for one in _followers.pop(id(module), ()) if one is not follower)
            if rest:
                _followers[id(module)] = rest
            _leave()

    return end


def follow_all(everyone: Everyone) -> Callable[[], None]:
    """Follow the calls of all modules, of whatever model; returns the function that ends it."""
    global _of_all
    with _lock:
        _of_all = (*_of_all, everyone)
        _stand_in()

    def end() -> None:
        global _of_all
        with _lock:
            _of_all = tuple(one for one in _of_all if one is not everyone)
            _leave()

    return end


def _stand_in() -> None:
    global _original
    if _original is None:
        _original = nn.Module.__call__
        nn.Module.__call__ = _call


def _leave() -> None:
    global _original
    # where another has taken the place since, it calls `_call`: both stay
    if not (_followers or _of_all) and nn.Module.__call__ is _call and _original is not None:
        nn.Module.__call__ = _original
        _original = None


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    original = _original or nn.Module._wrapped_call_impl  # ended by another thread just now
    followers = _followers.get(id(module), ())
    ends = [end for everyone in _of_all if (end := everyone(module)) is not None]
    if not (followers or ends):
        return original(module, *args, **kwargs)
    output = None
    try:
        for one in followers:
            if one.before is not None:
                one.before(args, kwargs)
        output = original(module, *args, **kwargs)
        return output
    finally:
        for one in followers:
            if one.after is not None:
                one.after(args, output)
        for end in ends:
            end()
