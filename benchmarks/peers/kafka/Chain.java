import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * Kafka Connect's own transforms over records in memory, in the one thread that reads commands.
 *
 * <p>Argument: a file with the chain, the format and its schemas as JSON. Commands on standard input, each answered by
 * one line of JSON: {@code load FILE} reads records, each as JSON on a line, its value in base64; {@code pass} puts all
 * of them through the chain and tells the seconds; {@code write FILE} does so and writes what became of each record.
 */
public final class Chain {
    private static final ObjectMapper JSON = new ObjectMapper();

    private record Message(String topic, long offset, long timestamp, String[] names, String[] texts, byte[] value) {}

    private record Stage(Transformation<SinkRecord> transform, Predicate<SinkRecord> predicate, boolean negate) {
        SinkRecord apply(SinkRecord record) {
            return predicate == null || negate != predicate.test(record) ? transform.apply(record) : record;
        }
    }

    private record Out(SinkRecord record, byte[] value, Exception error) {}

    private final Values values;
    private final List<Stage> stages = new ArrayList<>();
    private final List<Message> messages = new ArrayList<>();

    private Chain(Path plan) throws Exception {
        JsonNode given = JSON.readTree(plan.toFile());
        values =
                switch (given.get("format").asText()) {
                    case "avro" -> new AvroValues(given);
                    case "protobuf" -> new ProtobufValues(given);
                    default -> new JsonValues(given);
                };
        for (JsonNode stage : given.get("stages")) {
            JsonNode guard = stage.get("predicate");
            stages.add(new Stage(configured(stage), guard == null ? null : configured(guard), stage.path("negate").asBoolean()));
        }
    }

    private ObjectNode load(Path records) throws Exception {
        messages.clear();
        try (BufferedReader lines = Files.newBufferedReader(records)) {
            for (String line; (line = lines.readLine()) != null; ) {
                messages.add(message(JSON.readTree(line), messages.size()));
            }
        }
        return JSON.createObjectNode().put("records", messages.size());
    }

    @SuppressWarnings("unchecked")
    private static <T extends Configurable> T configured(JsonNode given) throws Exception {
        T made = (T) Class.forName(given.get("class").asText()).getDeclaredConstructor().newInstance();
        made.configure(JSON.convertValue(given.get("config"), Map.class));
        return made;
    }

    private static Message message(JsonNode given, int offset) {
        JsonNode headers = given.get("headers");
        String[] names = new String[headers.size()];
        String[] texts = new String[headers.size()];
        for (int at = 0; at < names.length; at++) {
            names[at] = headers.get(at).get(0).asText();
            texts[at] = headers.get(at).get(1).asText();
        }
        byte[] value = Base64.getDecoder().decode(given.get("value").asText());
        return new Message(given.get("topic").asText(), offset, given.get("timestamp").asLong(), names, texts, value);
    }

    private SinkRecord read(Message message) throws Exception {
        ConnectHeaders headers = new ConnectHeaders();
        for (int at = 0; at < message.names.length; at++) {
            headers.addString(message.names[at], message.texts[at]);
        }
        SchemaAndValue read = values.read(message.topic, message.value);
        return new SinkRecord(message.topic, 0, null, null, read.schema(), read.value(), message.offset,
                message.timestamp, TimestampType.CREATE_TIME, headers);
    }

    /** What becomes of a message: a null record was filtered. */
    private Out run(Message message) {
        try {
            SinkRecord record = read(message);
            for (Stage stage : stages) {
                record = stage.apply(record);
                if (record == null) {
                    return new Out(null, null, null);
                }
            }
            return new Out(record, values.write(record.topic(), record.valueSchema(), record.value()), null);
        } catch (Exception error) {
            return new Out(null, null, error);
        }
    }

    private ObjectNode pass(ThreadMXBean threads) {
        long wall = System.nanoTime();
        long cpu = threads.getCurrentThreadCpuTime();
        long bytes = 0;
        for (Message message : messages) {
            byte[] value = run(message).value;
            bytes += value == null ? 0 : value.length;
        }
        return JSON.createObjectNode()
                .put("cpu", (threads.getCurrentThreadCpuTime() - cpu) / 1e9)
                .put("wall", (System.nanoTime() - wall) / 1e9)
                .put("bytes", bytes);
    }

    private ObjectNode write(File file) throws Exception {
        Map<String, Integer> errors = new HashMap<>();
        try (BufferedWriter writer = Files.newBufferedWriter(file.toPath())) {
            for (Message message : messages) {
                Out out = run(message);
                ObjectNode line = JSON.createObjectNode();
                if (out.error != null) {
                    line.put("outcome", "failed");
                    errors.merge(String.valueOf(out.error), 1, Integer::sum);
                } else if (out.record == null) {
                    line.put("outcome", "filtered");
                } else {
                    line.put("outcome", "alive").put("topic", out.record.topic());
                    line.put("value", Base64.getEncoder().encodeToString(out.value));
                    ArrayNode names = line.putArray("headers");
                    for (Header header : out.record.headers()) {
                        names.add(header.key());
                    }
                }
                writer.write(JSON.writeValueAsString(line));
                writer.newLine();
            }
        }
        ObjectNode told = JSON.createObjectNode().put("records", messages.size());
        told.set("errors", JSON.valueToTree(errors));
        return told;
    }

    public static void main(String[] arguments) throws Exception {
        Chain chain = new Chain(Path.of(arguments[0]));
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            String[] words = line.split(" ", 2);
            System.out.println(
                    switch (words[0]) {
                        case "load" -> chain.load(Path.of(words[1]));
                        case "pass" -> chain.pass(threads);
                        default -> chain.write(new File(words[1]));
                    });
        }
    }
}
