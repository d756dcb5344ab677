"""What is known of clients beside the connection at hand: their groups, their Streams instance, their principal.

A member's heartbeats and its fetches come on different connections. They share principal, client id and host, so what
the broker accepted on one of them is remembered under these and asked for on the other.

A membership ends with the last connection that had it, or when nothing is heard of it for long.

One rule: bounded, whatever clients call themselves: the client that was heard of longest ago is forgotten first. It
must never read a clock.
"""

from collections import OrderedDict
from typing import Final

from headgate.activity.model.identity import ANONYMOUS, ClientKey, Group, is_telling, stem, streams_instance

MOST_CLIENTS: Final = 100_000
_MOST_GROUPS: Final = 4  # of one client: two are ambiguous already
_MEMORY_S: Final = 300.0  # so long a group that is not heard of any more still counts
_MOST_STEMS: Final = 2  # of one principal: two make it shared
_MOST_PRINCIPALS: Final = 10_000


class _Heard:
    """When a membership was last heard of, and on how many connections."""

    __slots__ = ("at", "links")

    def __init__(self) -> None:
        self.at = float("-inf")
        self.links = 0


_Seen = dict[Group, _Heard]


class KnownGroups:
    """The groups of clients, and which principals are more than one client's."""

    def __init__(self, most: int = MOST_CLIENTS) -> None:
        self._most = most
        self._by_client: OrderedDict[ClientKey, _Seen] = OrderedDict()
        self._by_instance: OrderedDict[ClientKey, _Seen] = OrderedDict()  # the client id is the instance's
        self._stems: OrderedDict[str, set[str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_client) + len(self._by_instance)

    def joined(self, client: ClientKey, group: Group, now: float, *, is_first: bool = True) -> bool:
        """A broker accepted this client as a member; True when that was not known.

        `is_first`: it has not been said on this connection before.
        """
        is_news = self._note(self._by_client, client, group, now, is_first=is_first)
        instance = streams_instance(client.client_id)
        if instance is not None:
            key = client._replace(client_id=instance)
            is_news = self._note(self._by_instance, key, group, now, is_first=is_first) or is_news
        return is_news

    def left(self, client: ClientKey, group: Group) -> None:
        """A connection on which that was said has closed."""
        _forget(self._by_client, client, group)
        instance = streams_instance(client.client_id)
        if instance is not None:
            _forget(self._by_instance, client._replace(client_id=instance), group)

    def groups_of(self, client: ClientKey, now: float) -> tuple[Group, ...]:
        return _alive(self._by_client.get(client), now)

    def thread_groups_of(self, client: ClientKey, now: float) -> tuple[Group, ...]:
        """The groups of all clients of the same Streams instance, which producers and restore consumers are not in."""
        instance = streams_instance(client.client_id)
        if instance is None:
            return ()
        return _alive(self._by_instance.get(client._replace(client_id=instance)), now)

    def met(self, client: ClientKey) -> bool:
        """A client under this principal was seen; True when that makes the principal a shared one."""
        principal, client_id = client.principal, client.client_id
        if principal is None or principal == ANONYMOUS or client_id is None or not is_telling(client_id):
            return False
        stems = self._stems.setdefault(principal, set())
        self._stems.move_to_end(principal)
        if len(self._stems) > _MOST_PRINCIPALS:
            self._stems.popitem(last=False)
        if len(stems) >= _MOST_STEMS:
            return False
        stems.add(stem(streams_instance(client_id) or client_id)[:256])
        return len(stems) == _MOST_STEMS

    def is_shared(self, principal: str | None) -> bool:
        return principal is not None and len(self._stems.get(principal, ())) >= _MOST_STEMS

    def _note(
        self, table: OrderedDict[ClientKey, _Seen], key: ClientKey, group: Group, now: float, *, is_first: bool
    ) -> bool:
        seen = table.get(key)
        if seen is None:
            seen = table[key] = {}
            if len(table) > self._most:
                table.popitem(last=False)
        else:
            table.move_to_end(key)
        heard = seen.get(group)
        if heard is None:
            if len(seen) >= _MOST_GROUPS:
                del seen[min(seen, key=lambda one: seen[one].at)]
            heard = seen[group] = _Heard()
        is_news = heard.at < now - _MEMORY_S
        heard.at = now
        heard.links += is_first
        return is_news


def _forget(table: OrderedDict[ClientKey, _Seen], key: ClientKey, group: Group) -> None:
    seen = table.get(key)
    heard = None if seen is None else seen.get(group)
    if seen is None or heard is None:
        return
    heard.links -= 1
    if heard.links <= 0:
        del seen[group]
        if not seen:
            del table[key]


def _alive(seen: _Seen | None, now: float) -> tuple[Group, ...]:
    if not seen:
        return ()
    return tuple(group for group, heard in seen.items() if heard.at >= now - _MEMORY_S)
