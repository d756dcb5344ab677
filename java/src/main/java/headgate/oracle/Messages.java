package headgate.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.BaseRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;

/** Messages of any api key and version: bytes to a tree and back, through the classes that Kafka's build generates. */
final class Messages {
    private static final short API_VERSIONS = 18;
    private static final Map<String, Method> METHODS = new ConcurrentHashMap<>();

    private Messages() {}

    /**
     * Item: kind (request, response, request_header, response_header), key, version, bytes; header true when the bytes begin
     * with the header, and then a request needs neither key nor version; records "open" to see the record batches.
     */
    static ObjectNode decode(JsonNode item, ObjectNode reply) throws ReflectiveOperationException {
        ByteBuffer bytes = ByteBuffer.wrap(binary(item.get("bytes")));
        boolean open = item.path("records").asText("").equals("open");
        String kind = item.get("kind").asText();
        short key = (short) item.path("key").asInt();
        short version = (short) item.path("version").asInt();
        if (item.path("header").asBoolean()) {
            if (kind.equals("request")) {
                key = bytes.getShort(0);
                version = bytes.getShort(2);
                short form = ApiMessageType.fromApiKey(key).requestHeaderVersion(version);
                RequestHeaderData header = new RequestHeaderData(new ByteBufferAccessor(bytes), form);
                reply.set("header", tree(header, form, open));
            } else {
                short form = ApiMessageType.fromApiKey(key).responseHeaderVersion(version);
                ResponseHeaderData header = new ResponseHeaderData(new ByteBufferAccessor(bytes), form);
                reply.set("header", tree(header, form, open));
            }
        }
        // A broker that does not know the asked version of ApiVersions answers in version 0: error 35 and little else.
        if (kind.equals("response") && key == API_VERSIONS && bytes.getShort(bytes.position()) == 35) {
            version = 0;
        }
        Message message = empty(kind, key);
        message.read(new ByteBufferAccessor(bytes), version);
        if (bytes.hasRemaining()) {
            throw new IllegalArgumentException(bytes.remaining() + " bytes behind the message");
        }
        reply.put("key", key);
        reply.put("version", version);
        reply.put("name", message.getClass().getSimpleName().replaceFirst("Data$", ""));
        reply.set("tree", tree(message, version, open));
        reply.put("bytes", written(message, version));
        return reply;
    }

    /** Item: kind, key, version, tree; answers the bytes. */
    static ObjectNode encode(JsonNode item, ObjectNode reply) throws ReflectiveOperationException {
        short version = (short) item.get("version").asInt();
        Class<?> type = empty(item.get("kind").asText(), (short) item.path("key").asInt()).getClass();
        Object message = invoke(converter(type, "read", JsonNode.class, short.class), item.get("tree"), version);
        reply.put("bytes", written((Message) message, version));
        return reply;
    }

    /** Item: kind, key, version; answers a message in which every field has its default. */
    static ObjectNode blank(JsonNode item, ObjectNode reply) {
        Message message = empty(item.get("kind").asText(), (short) item.path("key").asInt());
        reply.put("bytes", written(message, (short) item.get("version").asInt()));
        return reply;
    }

    private static Message empty(String kind, short key) {
        return switch (kind) {
            case "request" -> ApiMessageType.fromApiKey(key).newRequest();
            case "response" -> ApiMessageType.fromApiKey(key).newResponse();
            case "request_header" -> new RequestHeaderData();
            case "response_header" -> new ResponseHeaderData();
            default -> throw new IllegalArgumentException("no kind " + kind);
        };
    }

    private static byte[] written(Message message, short version) {
        return MessageUtil.byteBufferToArray(MessageUtil.toByteBufferAccessor(message, version).buffer());
    }

    private static JsonNode tree(Message message, short version, boolean open) throws ReflectiveOperationException {
        Method write = converter(message.getClass(), "write", message.getClass(), short.class, boolean.class);
        JsonNode node = (JsonNode) invoke(write, message, version, false);
        putRecords(message, (ObjectNode) node, open);
        return node;
    }

    /** Kafka's converters give only the size of a record set: put its bytes, or its batches, where its name is. */
    private static void putRecords(Object struct, ObjectNode node, boolean open) throws ReflectiveOperationException {
        for (String name : names(node)) {
            JsonNode value = node.get(name);
            String field = name.replaceFirst("SizeInBytes$", "");
            if (!field.equals(name) && get(struct, field) instanceof BaseRecords records) {
                node.remove(name);
                byte[] bytes = MessageUtil.byteBufferToArray(((MemoryRecords) records).buffer());
                if (open) {
                    node.set(field, RecordSets.tree(bytes, node.arrayNode()));
                } else {
                    node.put(field, bytes);
                }
            } else if (value.isArray()) {
                if (!value.isEmpty() && value.get(0).isObject()) {
                    Iterator<?> elements = ((Iterable<?>) get(struct, name)).iterator();
                    for (JsonNode child : value) {
                        putRecords(elements.next(), (ObjectNode) child, open);
                    }
                }
            } else if (value.isObject()) {
                putRecords(get(struct, name), (ObjectNode) value, open);
            }
        }
    }

    private static List<String> names(ObjectNode node) {
        List<String> names = new ArrayList<>();
        node.fieldNames().forEachRemaining(names::add);
        return names;
    }

    private static Object get(Object struct, String field) throws ReflectiveOperationException {
        String id = struct.getClass().getName() + "#" + field;
        Method getter = METHODS.get(id);
        if (getter == null) {
            getter = struct.getClass().getMethod(field);
            METHODS.put(id, getter);
        }
        return invoke(getter, struct);
    }

    private static Method converter(Class<?> type, String name, Class<?>... parameters) throws ReflectiveOperationException {
        String id = type.getName() + "!" + name;
        Method method = METHODS.get(id);
        if (method == null) {
            method = Class.forName(type.getName() + "JsonConverter").getMethod(name, parameters);
            METHODS.put(id, method);
        }
        return method;
    }

    /** Calls a getter on its first argument, or a static method with all of them; a failure inside comes out as itself. */
    private static Object invoke(Method method, Object... arguments) throws ReflectiveOperationException {
        try {
            return method.getParameterCount() == 0 ? method.invoke(arguments[0]) : method.invoke(null, arguments);
        } catch (InvocationTargetException failure) {
            if (failure.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw failure;
        }
    }

    static byte[] binary(JsonNode node) {
        return Base64.getDecoder().decode(node.asText());
    }
}
