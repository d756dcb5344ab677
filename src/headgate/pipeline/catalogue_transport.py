"""The Kafka transport of the OpenLineage client, which fails where Kafka has not confirmed the event.

The client's own only logs that: an event would count as sent, and tables would wait for as long as no broker answers.
Importing this module puts it in the place of the client's own, also within a `composite` transport.
"""

from confluent_kafka import KafkaError, Message
from openlineage.client.client import Event
from openlineage.client.serde import Serde
from openlineage.client.transport import register_transport
from openlineage.client.transport.kafka import KafkaTransport

from headgate.base.errors import ClusterError
from headgate.kafka.topics import reason

CONFIRM_S = 10.0


@register_transport
class ConfirmedKafkaTransport(KafkaTransport):
    """Sends one event after the other; `ClusterError` for one that is not confirmed in time."""

    def emit(self, event: Event) -> None:
        outcome: list[KafkaError | None] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            outcome.append(error)

        producer = self.producer
        assert producer is not None
        key = self.message_key or self._get_message_key(event)
        producer.produce(self.topic, key=key, value=Serde.to_json(event).encode(), on_delivery=on_delivery)
        producer.flush(CONFIRM_S)
        if not outcome:
            producer.purge()  # it is sent again, with the time of then
            raise ClusterError(f"Kafka has not confirmed it within {CONFIRM_S:g} s")
        if outcome[0] is not None:
            raise ClusterError(f"Kafka refused it: {reason(outcome[0])}")
