"""The watcher of Produce, Fetch and ShareFetch: which connection uses which topic, and with how many bytes.

A call is looked at closely when something about it is new; from then on calls like it take the short way (`familiar`),
which costs a few dictionary operations. A Produce counts when its answer says that a partition took it, a Fetch when
its answer brings records. A Produce that wants no answer (acks=0) counts as it is sent.

One rule: it must never keep the data plane: no waiting, no copies of records, and all that it keeps is bounded.
"""

from headgate.activity.fast_path import FetchFamiliar, ProduceFamiliar
from headgate.activity.group_watcher import first_text
from headgate.activity.model.identity import Group
from headgate.activity.model.intervals import Interval
from headgate.activity.usage_tracker import LONGEST_NAME, Ledger, Sight
from headgate.base.errors import WireError
from headgate.base.ids import ApiKey
from headgate.proxy.interceptor import Forward, Interceptor, RequestFrame, Session
from headgate.wire.topic_use import FETCH, PRODUCE, SHARE_FETCH, AnswerUse, Form, form, produce_start

_NOTHING = Forward()


class _Produced:
    """A Produce whose answer is still to be read."""

    __slots__ = ("answer", "familiar", "form", "is_answered", "prefix", "records", "sight", "size", "transactional_id")

    def __init__(
        self, sight: Sight, the_form: Form, familiar: ProduceFamiliar, *, size: int, transactional_id: str | None
    ) -> None:
        self.sight = sight
        self.form = the_form
        self.answer = AnswerUse(the_form)
        self.familiar = familiar
        self.size = size
        self.transactional_id = transactional_id
        self.is_answered = True
        self.prefix: bytes | None = None  # how calls like it begin
        self.records: int | None = None


class Fetched:
    """A Fetch or ShareFetch whose answer is being read."""

    __slots__ = ("answer", "familiar", "form", "group", "sight")

    def __init__(
        self, sight: Sight, the_form: Form, *, group: Group | None = None, familiar: FetchFamiliar | None = None
    ) -> None:
        self.sight = sight
        self.form = the_form
        self.group = group
        self.familiar = familiar
        self.answer = AnswerUse(the_form)


class UseWatcher(Interceptor):
    """See the module."""

    stream_keys = frozenset((ApiKey(PRODUCE), ApiKey(FETCH), ApiKey(SHARE_FETCH)))

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._produce: dict[int, ProduceFamiliar] = {}
        self.unreadable = 0  # answers, or beginnings of requests

    def on_request(self, request: RequestFrame, session: Session) -> Forward:
        the_form = form(request.api_key, request.api_version)
        sight = self._ledger.sight(session, request.client_id)
        if request.api_key == PRODUCE:
            return self._on_produce(request, session, sight, the_form)
        if request.api_key == FETCH:
            familiar = FetchFamiliar(
                the_form, request.client_id, lambda known: Fetched(sight, the_form, familiar=known), self._ledger.touch
            )
            session.know(request.api_key, request.api_version, familiar)
            return Forward(Fetched(sight, the_form, familiar=familiar))
        name = first_text(request.body, flexible=True)
        group = Group("share_group", name) if name else None
        return Forward(Fetched(sight, the_form, group=group))

    def _on_produce(self, request: RequestFrame, session: Session, sight: Sight, the_form: Form) -> Forward:
        start = produce_start(request.body, request.api_version)
        if start is None:
            self.unreadable += 1
            return _NOTHING
        familiar = self._produce.get(session.number)
        if familiar is None or familiar.version != request.api_version:
            familiar = self._produce[session.number] = ProduceFamiliar(request.api_version, self._ledger.touch)
            session.know(request.api_key, request.api_version, familiar)
        transactional_id = None
        if start.transactional_id is not None:
            transactional_id = start.transactional_id.decode(errors="replace")[:LONGEST_NAME]
        produced = _Produced(sight, the_form, familiar, size=request.size, transactional_id=transactional_id)
        beginning = _client_id_on_the_wire(request.client_id, flexible=the_form.flexible)
        if beginning is not None:
            produced.prefix = beginning + bytes(request.body[: start.end])
        if start.topic is not None:
            if start.records is not None and start.partitions == 1:
                produced.records = start.records
            if not request.is_answered:
                produced.is_answered = False
                self._produced(produced, {start.topic: 1}, session)
        return Forward(produced) if request.is_answered else _NOTHING

    def on_chunk(self, view: memoryview, context: object, session: Session) -> None:
        assert isinstance(context, _Produced | Fetched)
        try:
            is_read = context.answer.feed(view)
        except WireError:
            context.answer.is_done = True
            self.unreadable += 1
            return
        if not is_read or context.sight.is_closed:  # answers may come behind the client's end
            return
        if isinstance(context, _Produced):
            self._produced(context, context.answer.used, session)
        else:
            self._fetched(context, session)

    def on_close(self, session: Session) -> None:
        self._produce.pop(session.number, None)
        self._ledger.closed(session)

    def _produced(self, call: _Produced, used: dict[bytes, int], session: Session) -> None:
        """The topics that took something share the request's bytes, and those of calls that were not looked at."""
        if not used:
            return
        size = call.size + call.familiar.unseen(call.prefix)
        for topic in used:
            interval = self._ledger.use(
                session, call.sight, topic, "write", by_id=call.form.by_id, transactional_id=call.transactional_id
            )
            if call.records is not None:
                interval.topic.sample(call.records, call.size)
            self._add(interval, size // len(used))
        if call.prefix is None or not call.is_answered:
            return
        if call.answer.topics <= 1:
            [topic] = used
            error_at = 8 + call.form.flexible + _topics_before_error(call.form, topic)
            call.familiar.learn(call.prefix, interval, error_at)
        else:
            call.familiar.learn_many(call.prefix, call.answer.topics)

    def _fetched(self, call: Fetched, session: Session) -> None:
        used = call.answer.used
        familiar = call.familiar
        share = 1.0
        if familiar is not None and used:
            share += familiar.unseen() / max(1, sum(used.values()))
        for topic, size in used.items():
            interval = self._ledger.use(session, call.sight, topic, "read", by_id=call.form.by_id, group=call.group)
            self._add(interval, int(size * share))
            if familiar is not None:
                familiar.learn(topic, interval)
        if familiar is not None and call.answer.topics > 1:
            familiar.learn_many(call.answer.topics)

    def _add(self, interval: Interval, size: int) -> None:
        interval.bytes += size
        if not interval.touched:
            self._ledger.touch(interval)


def _topics_before_error(the_form: Form, topic: bytes) -> int:
    """From a Produce answer's count of topics to the first partition's error: counts, the topic, the index."""
    if the_form.by_id:
        return 1 + 16 + 1 + 4
    return 1 + 1 + len(topic) + 1 + 4 if the_form.flexible else 4 + 2 + len(topic) + 4 + 4


def _client_id_on_the_wire(client_id: str | None, *, flexible: bool) -> bytes | None:
    """What stands between the correlation id and the body of a request whose header has no tags."""
    tags = b"\x00" if flexible else b""
    if client_id is None:
        return b"\xff\xff" + tags
    text = client_id.encode(errors="replace")
    return len(text).to_bytes(2, "big") + text + tags if len(text) <= LONGEST_NAME else None
