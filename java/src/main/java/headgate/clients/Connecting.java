package headgate.clients;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/** What stands around a Connect worker that the test runs as a process of its own. */
final class Connecting {
    private Connecting() {}

    static void before(Run run) throws Exception {
        try (Admin admin = run.admin()) {
            run.create(admin, new NewTopic(run.topic("lines"), 1, (short) 1));
        }
    }

    static void after(Run run) throws Exception {
        try (Admin admin = run.admin()) {
            GroupCalls.sweep(admin, "connect-" + run.name() + "-sink");
            GroupCalls.sweep(admin, run.name());
            run.delete(
                admin, run.topic("lines"), run.topic("configs"), run.topic("offsets"), run.topic("status"));
        }
    }
}
