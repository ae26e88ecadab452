"""The slot list of a route. A pure function; whatever would run stock code silently is refused with the reason."""

from __future__ import annotations

from collections import Counter

from kit.errors import Failure, failure
from kit.slots.model import Composed, Refused, Route, Slots, SlotsDeclared

_STOCK = "B300 would start and run stock code on every step"


def compose(route: Route, declared: SlotsDeclared, slots: Slots | None, given: str | None = None) -> Composed | Refused:
    """What to start the engine with.

    ``slots`` is what :func:`kit.slots.derive.derive` read from the pinned plugin; only the patch route with no list of its
    own can do without. ``given`` is a value of the variable that a profile (or the base image) sets itself: it is checked,
    never mended.
    """
    if route is Route.PATCH and given is None:
        names = slots.defaults if slots is not None else ()
        return Composed(
            route=route, environment={}, slots=names, reason="the variable stays unset: the plugin's own defaults apply"
        )
    if slots is None:
        found = "nothing derived from the plugin"
        return Refused(
            route=route, failures=(failure("slots.unknown_defaults", declared.variable, "defaults", found, "derive them"),)
        )
    failures = _plugin(route, declared, slots)
    failures += _given(route, declared, slots, given) if given is not None else []
    if failures:
        return Refused(route=route, failures=tuple(failures))
    names = (*slots.defaults, declared.opt_in) if given is None else _split(given, declared)
    reason = f"{len(slots.defaults)} defaults of the pinned plugin" + (
        f" and {declared.opt_in}" if route is Route.UPSTREAM else ""
    )
    return Composed(route=route, environment={declared.variable: declared.separator.join(names)}, slots=names, reason=reason)


def _split(given: str, declared: SlotsDeclared) -> tuple[str, ...]:
    return tuple(given.split(declared.separator))


def _plugin(route: Route, declared: SlotsDeclared, slots: Slots) -> list[Failure]:
    """What is wrong with the plugin's own slots, whatever is asked for."""
    where = f"{slots.provenance.file}:{slots.provenance.line}"
    out: list[Failure] = []
    if len(slots.defaults) != declared.expected_defaults:
        next_step = "look at what changed, then correct expected-defaults in slots.yml"
        out.append(failure("slots.count", where, f"{declared.expected_defaults} defaults", len(slots.defaults), next_step))
    for name, count in Counter(slots.defaults).items():
        if count > 1:
            out.append(failure("slots.duplicate", where, f"{name} once", f"{count} times", "check the plugin"))
    if route is Route.UPSTREAM and declared.opt_in not in slots.known:
        found = f"a plugin that does not know {declared.opt_in}"
        out.append(failure("slots.no_opt_in", where, declared.opt_in, found, "take a newer plugin, or route: patch"))
    if route is Route.UPSTREAM and declared.opt_in in slots.defaults:
        found = f"{declared.opt_in} among the defaults already"
        out.append(failure("slots.opt_in_default", where, "an opt-in", found, "set no slots: the plugin admits B300 by itself"))
    return out


def _given(route: Route, declared: SlotsDeclared, slots: Slots, given: str) -> list[Failure]:
    """What is wrong with a list that somebody wrote."""
    where, opt_in = declared.variable, declared.opt_in
    if not given.strip():
        return [failure("slots.empty", where, "the defaults and more", "an empty list", f"leave it unset; {_STOCK}")]
    if any(character.isspace() for character in given):
        found = f"white space in {given!r}"
        return [failure("slots.space", where, f"names separated by {declared.separator!r} alone", found, "remove the spaces")]
    names = _split(given, declared)
    out: list[Failure] = []
    if "" in names:
        out.append(failure("slots.empty_name", where, "a name between separators", given, "remove the extra separator"))
    for name, count in Counter(names).items():
        if count > 1 and name:
            out.append(failure("slots.duplicate", where, f"{name} once", f"{count} times", "remove the repeats"))
    unknown = sorted({name for name in names if name and name not in slots.known})
    if unknown:
        out.append(failure("slots.unknown", where, "slots that the plugin knows", ", ".join(unknown), "correct the names"))
    missing = [name for name in slots.defaults if name not in names]
    if missing:
        out.append(_missing(route, declared, names, missing))
    if route is Route.UPSTREAM and opt_in not in names:
        out.append(failure("slots.no_opt_in", where, f"{opt_in} in the list", "not there", "add it: B300 is refused without"))
    if route is Route.PATCH and opt_in in names:
        found = f"{opt_in} beside the 148 patch"
        out.append(failure("slots.two_routes", where, "one route", found, f"remove {opt_in}, or take route: upstream"))
    return out


def _missing(route: Route, declared: SlotsDeclared, names: tuple[str, ...], missing: list[str]) -> Failure:
    shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    rest = f"the list replaces the defaults; missing: {shown}; {_STOCK}"
    if set(names) == {declared.opt_in}:
        found = f"{declared.opt_in} alone: {rest}"
        return failure(
            "slots.opt_in_alone", declared.variable, "the defaults and it", found, "leave it unset; the kit composes it"
        )
    code = "slots.defaults_dropped" if route is Route.PATCH else "slots.default_missing"
    return failure(code, declared.variable, "every default of the plugin", rest, "leave it unset or add them")
