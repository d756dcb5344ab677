package headgate.clients;

import static headgate.clients.Run.expect;
import static headgate.clients.Run.refused;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/** Transactional producers, what read_committed readers see of them, and the admin calls about them. */
final class Transactions {
    private Transactions() {}

    static void commitAndAbort(Run run) throws Exception {
        String topic = run.topic("transactions");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = run.admin();
            Producer<String, String> producer = run.producer("transactional", Map.of("transactional.id", run.name()))) {
            run.create(admin, new NewTopic(topic, 1, (short) 1));
            producer.initTransactions();
            transact(producer, topic, "kept", true);
            transact(producer, topic, "lost", false);
            transact(producer, topic, "kept-too", true);
            producer.beginTransaction();
            expect(producer.send(Run.record(topic, 0, "k", "open")));
            expect(admin.listTransactions(
                new ListTransactionsOptions().filterOnTransactionalIdPattern(run.name())).all());
            expect(admin.listTransactions(
                new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING))).all());
            expect(admin.describeTransactions(List.of(run.name())).all());
            expect(admin.describeProducers(List.of(partition)).all());
            producer.abortTransaction();
            refused(
                TransactionalIdNotFoundException.class,
                admin.describeTransactions(List.of(run.name() + "-none")).all());
            for (String isolation : List.of("read_committed", "read_uncommitted")) {
                try (Consumer<String, String> reader =
                    run.consumer(isolation, null, Map.of("isolation.level", isolation))) {
                    reader.assign(List.of(partition));
                    Run.poll(reader, isolation.equals("read_committed") ? 2 : 4);
                    reader.endOffsets(List.of(partition));
                }
            }
            run.delete(admin, topic);
        }
    }

    private static void transact(Producer<String, String> producer, String topic, String value, boolean commit)
        throws Exception {
        producer.beginTransaction();
        expect(producer.send(Run.record(topic, 0, "k", value)));
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    static void offsets(Run run) throws Exception {
        String input = run.topic("input");
        String output = run.topic("output");
        String group = run.name() + "-group";
        TopicPartition partition = new TopicPartition(input, 0);
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(input, 1, (short) 1), new NewTopic(output, 1, (short) 1));
            run.send("producer", input, 0, Run.values(2));
            try (Producer<String, String> producer =
                    run.producer("transactional", Map.of("transactional.id", run.name()));
                Consumer<String, String> consumer =
                    run.consumer("consumer", group, Map.of("group.protocol", "classic"))) {
                producer.initTransactions();
                consumer.subscribe(List.of(input));
                Run.poll(consumer, 2);
                for (boolean commit : new boolean[] {false, true}) {
                    producer.beginTransaction();
                    expect(producer.send(Run.record(output, 0, "k", "out-" + commit)));
                    producer.sendOffsetsToTransaction(
                        Map.of(partition, new OffsetAndMetadata(commit ? 2 : 1)), consumer.groupMetadata());
                    if (commit) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                }
                Run.await("the committed offset", () -> committed(run, group, partition));
            }
            Producing.readAll(run, output, 2);
            expect(admin.deleteConsumerGroups(List.of(group)).all());
            run.delete(admin, input, output);
        }
    }

    private static boolean committed(Run run, String group, TopicPartition partition) throws Exception {
        try (Admin waiting = run.admin("wait")) {
            OffsetAndMetadata seen =
                expect(waiting.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(partition);
            return seen != null && seen.offset() == 2;
        }
    }

    static void fencing(Run run) throws Exception {
        String topic = run.topic("fenced");
        Map<String, Object> settings = Map.of("transactional.id", run.name());
        try (Admin admin = run.admin();
            Producer<String, String> old = run.producer("old", settings);
            Producer<String, String> young = run.producer("young", settings)) {
            run.create(admin, new NewTopic(topic, 1, (short) 1));
            old.initTransactions();
            transact(old, topic, "first", true);
            young.initTransactions();
            transact(young, topic, "second", true);
            old.beginTransaction();
            refused(InvalidProducerEpochException.class, old.send(Run.record(topic, 0, "k", "late")));
            expect(admin.fenceProducers(List.of(run.name())).all());
            young.beginTransaction();
            refused(InvalidProducerEpochException.class, young.send(Run.record(topic, 0, "k", "later")));
            expectFenced(young);
            // A marker for a producer that the partition has never seen is written all the same.
            expect(admin.abortTransaction(
                new AbortTransactionSpec(new TopicPartition(topic, 0), 424242L, (short) 0, 0)).all());
            expect(admin.forceTerminateTransaction(run.name()).result());
            run.delete(admin, topic);
        }
    }

    private static void expectFenced(Producer<String, String> producer) {
        try {
            producer.commitTransaction();
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            return;
        } catch (org.apache.kafka.common.KafkaException error) {
            if (error.getCause() instanceof InvalidProducerEpochException) {
                return;
            }
            throw error;
        }
        throw new IllegalStateException("a fenced producer committed");
    }
}
