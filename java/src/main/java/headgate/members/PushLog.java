package headgate.members;

import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Standard error, where the client's log goes: the only place where it says what became of a push.
 *
 * <p>slf4j-simple writes a message with one {@code println}, so the whole text is seen, line ends and all.
 */
final class PushLog extends PrintStream {
    private static final Pattern FROM_A_PUSH =
        Pattern.compile("StreamsGroupTopologyDescriptionRequestManager - \\[Consumer .*?clientId=([^,]+), groupId=");
    // The texts of kafka-clients 4.4.0, each with the event that it is.
    private static final Map<String, String> EVENTS = new LinkedHashMap<>();

    static {
        EVENTS.put("Sending topology description for group ", "pushing");
        EVENTS.put("Topology description pushed successfully", "pushed");
        EVENTS.put("Topology description push failed with retriable exception", "push-again");
        EVENTS.put("Coordinator error ", "push-again");
        EVENTS.put("Coordinator is loading", "push-again");
        EVENTS.put("Topology description push ", "push-refused");
    }

    private final Function<String, Member> members;

    PushLog(OutputStream out, Function<String, Member> members) {
        super(out, true, StandardCharsets.UTF_8);
        this.members = members;
    }

    @Override
    public void println(String text) {
        super.println(text);
        Matcher line = FROM_A_PUSH.matcher(text == null ? "" : text);
        Member member = line.find() ? members.apply(line.group(1)) : null;
        if (member == null) {
            return;
        }
        String prefix = member.logPrefix();
        String message = text.substring(text.indexOf(prefix) + prefix.length());
        EVENTS.entrySet().stream()
            .filter(event -> message.startsWith(event.getKey()))
            .findFirst()
            .ifPresent(event -> member.happened(event.getValue(), message));
    }
}
