import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Proxy;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.ConnectSchema;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Runs Kafka's own transforms: one JSON request a line, one JSON answer a line, in the form of the vectors. */
public class KafkaHost {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    @SuppressWarnings({"rawtypes", "unchecked"})
    private record Stage(Transformation transform, Predicate predicate, boolean negate) {
        ConnectRecord<?> apply(ConnectRecord record) {
            boolean applies = predicate == null || predicate.test(record) != negate;
            return applies ? (ConnectRecord<?>) transform.apply(record) : record;
        }
    }

    /** A record of a sink that keeps its partition where a transform of sources names none. */
    private static final class LooseRecord extends SinkRecord {
        LooseRecord(
            String topic, int partition, Schema keySchema, Object key, Schema valueSchema, Object value, long offset,
            Long timestamp, TimestampType type, Iterable<Header> headers) {
            super(topic, partition, keySchema, key, valueSchema, value, offset, timestamp, type, headers);
        }

        @Override
        public SinkRecord newRecord(
            String topic, Integer partition, Schema keySchema, Object key, Schema valueSchema, Object value,
            Long timestamp) {
            return newRecord(topic, partition, keySchema, key, valueSchema, value, timestamp, headers().duplicate());
        }

        @Override
        public SinkRecord newRecord(
            String topic, Integer partition, Schema keySchema, Object key, Schema valueSchema, Object value,
            Long timestamp, Iterable<Header> headers) {
            int kept = partition == null ? kafkaPartition() : partition;
            return new LooseRecord(
                topic, kept, keySchema, key, valueSchema, value, kafkaOffset(), timestamp, timestampType(), headers);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            out.println(JSON.writeValueAsString(answer(request)));
            out.flush();
        }
    }

    private static ObjectNode answer(JsonNode request) {
        if (request.has("literals")) {
            return literals(request);
        }
        if (request.has("option")) {
            return option(request);
        }
        return request.has("pattern") ? match(request) : run(request);
    }

    private static ObjectNode literals(JsonNode request) {
        ArrayNode outcomes = NODES.arrayNode();
        for (JsonNode text : request.get("literals")) {
            try {
                SchemaAndValue parsed = Values.parseString(text.asText());
                outcomes.add(parsed == null ? side(null, null) : side(parsed.schema(), parsed.value()));
            } catch (RuntimeException | StackOverflowError thrown) {
                outcomes.add(error(thrown));
            }
        }
        return (ObjectNode) NODES.objectNode().set("outcomes", outcomes);
    }

    private static ObjectNode option(JsonNode request) {
        ArrayNode outcomes = NODES.arrayNode();
        for (JsonNode text : request.get("texts")) {
            try {
                Object value = ConfigDef.parseType("o", text.asText(), ConfigDef.Type.valueOf(request.get("option").asText()));
                outcomes.addObject().set("value", JSON.valueToTree(value));
            } catch (ConfigException thrown) {
                outcomes.add(error(thrown));
            }
        }
        return (ObjectNode) NODES.objectNode().set("outcomes", outcomes);
    }

    private static ObjectNode error(Throwable thrown) {
        return NODES.objectNode().put("error", thrown.getClass().getName()).put("message", thrown.getMessage());
    }

    private static ObjectNode match(JsonNode request) {
        ArrayNode outcomes = NODES.arrayNode();
        try {
            Pattern pattern = Pattern.compile(request.get("pattern").asText());
            for (JsonNode text : request.get("texts")) {
                Matcher matcher = pattern.matcher(text.asText());
                boolean whole = matcher.matches();
                matcher.reset();
                boolean found = matcher.find();
                ArrayNode one = outcomes.addArray().add(whole);
                one.add(found ? matcher.group() : null);
                for (int group = 1; found && group <= matcher.groupCount(); group++) {
                    one.add(matcher.group(group));
                }
            }
        } catch (RuntimeException | StackOverflowError thrown) {
            return error(thrown);
        }
        return (ObjectNode) NODES.objectNode().set("outcomes", outcomes);
    }

    private static ObjectNode run(JsonNode request) {
        List<Stage> stages = new ArrayList<>();
        try {
            for (JsonNode stage : request.get("stages")) {
                Predicate<?> predicate = stage.get("predicate").isNull() ? null : made(stage.get("predicate"));
                stages.add(new Stage(made(stage.get("transform")), predicate, stage.get("negate").asBoolean()));
            }
        } catch (Exception thrown) {
            return error(thrown);
        }
        ArrayNode outcomes = NODES.arrayNode();
        for (JsonNode given : request.get("records")) {
            ConnectRecord<?> record = record(given);
            try {
                for (Stage stage : stages) {
                    record = record == null ? null : stage.apply(record);
                }
                outcomes.add(record == null ? NODES.nullNode() : written(record));
            } catch (RuntimeException thrown) {
                outcomes.add(error(thrown));
            }
        }
        return (ObjectNode) NODES.objectNode().set("outcomes", outcomes);
    }

    @SuppressWarnings("unchecked")
    private static <T extends Configurable> T made(JsonNode config) throws Exception {
        T made = (T) Class.forName(config.get("type").asText()).getDeclaredConstructor().newInstance();
        Map<String, Object> options = new HashMap<>();
        config.fields().forEachRemaining(entry -> {
            if (!entry.getKey().equals("type")) {
                options.put(entry.getKey(), entry.getValue().asText());
            }
        });
        if (options.containsKey("hypertables")) {
            setCatalog(made, options);
        }
        made.configure(options);
        return made;
    }

    /** Gives TimescaleDb the tables that it would ask a database for: NAME:schema.table,… */
    private static void setCatalog(Object made, Map<String, Object> options) throws Exception {
        java.lang.reflect.Field field = made.getClass().getDeclaredField("metadata");
        Constructor<?> table = Class.forName("io.debezium.relational.TableId")
            .getConstructor(String.class, String.class, String.class);
        Map<String, String> names = new HashMap<>();
        for (String option : List.of("hypertables", "aggregates")) {
            for (String pair : ((String) options.getOrDefault(option, "")).split(",")) {
                int colon = pair.indexOf(':');
                names.put(option + pair.substring(0, Math.max(colon, 0)), pair.substring(colon + 1));
            }
        }
        Object metadata = Proxy.newProxyInstance(
            field.getType().getClassLoader(), new Class<?>[] {field.getType()}, (proxy, method, arguments) -> {
                if (method.getName().equals("isTimescaleDbSchema")) {
                    return arguments[0].equals("_timescaledb_internal");
                }
                String id = arguments[0].toString();
                Matcher number = Pattern.compile(".*\\._hyper_(\\d+)_\\d+_chunk").matcher(id);
                boolean isChunk = method.getName().equals("hypertableId");
                String name = isChunk ? "hypertables" + (number.matches() ? number.group(1) : id) : "aggregates" + id;
                if (!names.containsKey(name)) {
                    return Optional.empty();
                }
                String[] parts = names.get(name).split("\\.");
                return Optional.of(table.newInstance(null, parts[0], parts[1]));
            });
        field.setAccessible(true);
        field.set(made, metadata);
    }

    // --- reading ----------------------------------------------------------------------------------------------------

    private static ConnectRecord<?> record(JsonNode given) {
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode header : given.get("headers")) {
            Schema schema = schema(header.get(1).get("schema"));
            headers.add(header.get(0).asText(), value(schema, header.get(1).get("value")), schema);
        }
        Schema key = schema(given.get("key").get("schema"));
        Schema value = schema(given.get("value").get("schema"));
        JsonNode timestamp = given.get("timestamp");
        if (given.path("kind").asText().equals("source")) {
            return new SourceRecord(
                null, null, given.get("topic").asText(), given.get("partition").asInt(), key,
                value(key, given.get("key").get("value")), value, value(value, given.get("value").get("value")),
                timestamp.isNull() ? null : timestamp.asLong(), headers);
        }
        return new LooseRecord(
            given.get("topic").asText(), given.get("partition").asInt(), key, value(key, given.get("key").get("value")),
            value, value(value, given.get("value").get("value")), given.get("offset").asLong(),
            timestamp.isNull() ? null : timestamp.asLong(), TimestampType.CREATE_TIME, headers);
    }

    private static Schema schema(JsonNode given) {
        if (given == null || given.isNull()) {
            return null;
        }
        Schema.Type type = Schema.Type.valueOf(given.get("type").asText().toUpperCase(Locale.ROOT));
        List<Field> fields = new ArrayList<>();
        for (JsonNode field : given.path("fields")) {
            fields.add(new Field(field.get("name").asText(), fields.size(), schema(field.get("schema"))));
        }
        Map<String, String> parameters = new LinkedHashMap<>();
        given.path("parameters").fields().forEachRemaining(one -> parameters.put(one.getKey(), one.getValue().asText()));
        Schema bare = schema(given, type, fields, parameters, null);
        JsonNode fallback = given.path("default");
        return fallback.isNull() || fallback.isMissingNode()
            ? bare : schema(given, type, fields, parameters, value(bare, fallback));
    }

    private static Schema schema(
            JsonNode given, Schema.Type type, List<Field> fields, Map<String, String> parameters, Object fallback) {
        return new ConnectSchema(
            type, given.path("optional").asBoolean(), fallback, given.path("name").textValue(),
            given.hasNonNull("version") ? given.get("version").asInt() : null, given.path("doc").textValue(),
            parameters.isEmpty() ? null : parameters, type == Schema.Type.STRUCT ? fields : null,
            schema(given.get("keys")), schema(given.get("values")));
    }

    private static Object value(Schema schema, JsonNode given) {
        if (given.isNull()) {
            return null;
        }
        if (given.isObject() && given.size() == 1 && given.fieldNames().next().startsWith("$")) {
            String tag = given.fieldNames().next();
            return tagged(schema, tag, given.get(tag));
        }
        if (given.isObject()) {
            return schema != null && schema.type() == Schema.Type.STRUCT ? struct(schema, given) : map(schema, given);
        }
        if (given.isArray()) {
            List<Object> items = new ArrayList<>();
            given.forEach(item -> items.add(value(schema == null ? null : schema.valueSchema(), item)));
            return items;
        }
        if (given.isBoolean()) {
            return given.booleanValue();
        }
        return given.isTextual() ? given.textValue() : number(schema, given);
    }

    private static Object number(Schema schema, JsonNode given) {
        Schema.Type otherwise = given.isIntegralNumber() ? Schema.Type.INT64 : Schema.Type.FLOAT64;
        switch (schema == null ? otherwise : schema.type()) {
            case INT8: return (byte) given.intValue();
            case INT16: return (short) given.intValue();
            case INT32: return given.intValue();
            case FLOAT32: return given.floatValue();
            case FLOAT64: return given.doubleValue();
            default: return given.longValue();
        }
    }

    private static Struct struct(Schema schema, JsonNode given) {
        Struct struct = new Struct(schema);
        for (Field field : schema.fields()) {
            Object value = value(field.schema(), given.get(field.name()));
            if (value != null) {
                struct.put(field, value);
            }
        }
        return struct;
    }

    private static Map<Object, Object> map(Schema schema, JsonNode given) {
        Map<Object, Object> map = new LinkedHashMap<>();
        Schema inner = schema == null ? null : schema.valueSchema();
        given.fields().forEachRemaining(entry -> map.put(entry.getKey(), value(inner, entry.getValue())));
        return map;
    }

    private static Object tagged(Schema schema, String tag, JsonNode given) {
        switch (tag) {
            case "$bytes": return HexFormat.of().parseHex(given.asText());
            case "$decimal": return new BigDecimal(given.asText());
            case "$date": case "$time": case "$timestamp": return new Date(given.longValue());
            case "$int8": return (byte) given.intValue();
            case "$int16": return (short) given.intValue();
            case "$int32": return given.intValue();
            case "$int64": return given.longValue();
            case "$float32": return Float.valueOf(given.asText());
            case "$float":
                boolean single = schema != null && schema.type() == Schema.Type.FLOAT32;
                return single ? (Object) Float.valueOf(given.asText()) : (Object) Double.valueOf(given.asText());
            case "$bigint": return new BigInteger(given.asText());
            case "$map":
                Map<Object, Object> map = new LinkedHashMap<>();
                Schema keys = schema == null ? null : schema.keySchema();
                Schema values = schema == null ? null : schema.valueSchema();
                given.forEach(pair -> map.put(value(keys, pair.get(0)), value(values, pair.get(1))));
                return map;
            case "$struct": return value(schema(given.get("schema")), given.get("value"));
            default: throw new IllegalArgumentException(tag);
        }
    }

    // --- writing ----------------------------------------------------------------------------------------------------

    private static ObjectNode written(ConnectRecord<?> record) {
        ObjectNode out = NODES.objectNode().put("topic", record.topic()).put("partition", record.kafkaPartition());
        out.put("timestamp", record.timestamp());
        out.put("offset", record instanceof SinkRecord ? (Long) ((SinkRecord) record).kafkaOffset() : null);
        out.set("key", side(record.keySchema(), record.key()));
        out.set("value", side(record.valueSchema(), record.value()));
        ArrayNode headers = out.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(side(header.schema(), header.value()));
        }
        return out;
    }

    private static ObjectNode side(Schema schema, Object value) {
        ObjectNode out = NODES.objectNode();
        out.set("schema", written(schema));
        out.set("value", written(schema, value));
        return out;
    }

    private static JsonNode written(Schema schema) {
        if (schema == null) {
            return NODES.nullNode();
        }
        ObjectNode out = NODES.objectNode().put("type", schema.type().getName()).put("optional", schema.isOptional());
        out.put("name", schema.name()).put("version", schema.version()).put("doc", schema.doc());
        out.set("default", written(schema, schema.defaultValue()));
        if (schema.parameters() != null) {
            out.set("parameters", JSON.valueToTree(schema.parameters()));
        }
        if (schema.type() == Schema.Type.STRUCT) {
            ArrayNode fields = out.putArray("fields");
            for (Field field : schema.fields()) {
                fields.addObject().put("name", field.name()).set("schema", written(field.schema()));
            }
        }
        if (schema.type() == Schema.Type.MAP) {
            out.set("keys", written(schema.keySchema()));
        }
        if (schema.type() == Schema.Type.MAP || schema.type() == Schema.Type.ARRAY) {
            out.set("values", written(schema.valueSchema()));
        }
        return out;
    }

    private static ObjectNode tag(String name, JsonNode value) {
        return (ObjectNode) NODES.objectNode().set(name, value);
    }

    private static JsonNode written(Schema schema, Object value) {
        if (value == null) {
            return NODES.nullNode();
        }
        if (value instanceof Boolean) {
            return NODES.booleanNode((Boolean) value);
        }
        if (value instanceof String) {
            return NODES.textNode((String) value);
        }
        if (value instanceof Number) {
            return written(schema, (Number) value);
        }
        if (value instanceof Date) {
            return tag("$timestamp", NODES.numberNode(((Date) value).getTime()));
        }
        if (value instanceof byte[] || value instanceof ByteBuffer) {
            byte[] bytes = value instanceof byte[] ? (byte[]) value : ((ByteBuffer) value).array();
            return tag("$bytes", NODES.textNode(HexFormat.of().formatHex(bytes)));
        }
        if (value instanceof Struct) {
            return written(schema, (Struct) value);
        }
        Schema.Type type = schema == null ? null : schema.type();
        boolean nested = type == Schema.Type.ARRAY || type == Schema.Type.MAP;
        Schema inner = nested ? schema.valueSchema() : null;
        if (value instanceof List) {
            ArrayNode items = NODES.arrayNode();
            ((List<?>) value).forEach(item -> items.add(written(inner, item)));
            return items;
        }
        ArrayNode pairs = NODES.arrayNode();
        Schema keys = type == Schema.Type.MAP ? schema.keySchema() : null;
        ((Map<?, ?>) value).forEach((k, v) -> pairs.addArray().add(written(keys, k)).add(written(inner, v)));
        return tag("$map", pairs);
    }

    private static JsonNode written(Schema schema, Number value) {
        Schema.Type type = schema == null ? null : schema.type();
        if (value instanceof BigDecimal) {
            return tag("$decimal", NODES.textNode(value.toString()));
        }
        if (value instanceof BigInteger) {
            return tag("$bigint", NODES.textNode(value.toString()));
        }
        if (value instanceof Double) {
            return tag("$float", NODES.textNode(value.toString()));
        }
        if (value instanceof Float) {
            return tag(type == Schema.Type.FLOAT32 ? "$float" : "$float32", NODES.textNode(value.toString()));
        }
        int bits = value instanceof Byte ? 8 : value instanceof Short ? 16 : value instanceof Integer ? 32 : 64;
        boolean plain = type == Schema.Type.valueOf("INT" + bits) || (type == null && bits == 64);
        JsonNode number = NODES.numberNode(value.longValue());
        return plain ? number : tag("$int" + bits, number);
    }

    private static JsonNode written(Schema schema, Struct struct) {
        ObjectNode fields = NODES.objectNode();
        for (Field field : struct.schema().fields()) {
            fields.set(field.name(), written(field.schema(), struct.getWithoutDefault(field.name())));
        }
        if (schema != null && schema.type() == Schema.Type.STRUCT) {
            return fields;
        }
        ObjectNode inner = NODES.objectNode();
        inner.set("schema", written(struct.schema()));
        inner.set("value", fields);
        return tag("$struct", inner);
    }
}
