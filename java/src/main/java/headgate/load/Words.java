package headgate.load;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The `key=value` words of one run. */
final class Words {
    private final Map<String, String> words = new HashMap<>();

    Words(List<String> given) {
        for (String word : given) {
            int equals = word.indexOf('=');
            if (equals < 1) {
                throw new IllegalArgumentException("not key=value: " + word);
            }
            words.put(word.substring(0, equals), word.substring(equals + 1));
        }
    }

    Words with(String key, String value) {
        Words changed = new Words(List.of());
        changed.words.putAll(words);
        changed.words.put(key, value);
        return changed;
    }

    String text(String key) {
        String value = words.get(key);
        if (value == null) {
            throw new IllegalArgumentException("missing: " + key + "=");
        }
        return value;
    }

    String text(String key, String otherwise) {
        return words.getOrDefault(key, otherwise);
    }

    int number(String key, int otherwise) {
        return words.containsKey(key) ? Integer.parseInt(words.get(key)) : otherwise;
    }

    double real(String key, double otherwise) {
        return words.containsKey(key) ? Double.parseDouble(words.get(key)) : otherwise;
    }
}
