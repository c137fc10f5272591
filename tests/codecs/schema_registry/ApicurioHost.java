import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.DynamicMessage;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaDeserializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import io.apicurio.registry.utils.protobuf.schema.FileDescriptorUtils;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericContainer;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;

/**
 * Runs Apicurio's serializers: one JSON request a line, one JSON answer a line.
 *
 * <p>Payloads are values without a schema id, in base64: an Avro datum, a message, or JSON. A request with {@code
 * schema} gives payloads that are written with ids, one without gives texts with ids whose payloads are read.
 */
public class ApicurioHost {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            } catch (Exception thrown) {
                System.out.println(JSON.writeValueAsString(thrown.toString()));
            }
            System.out.flush();
        }
    }

    private static ArrayNode answer(JsonNode request) throws Exception {
        String format = request.get("format").textValue();
        String topic = request.get("topic").textValue();
        JsonNode schema = request.get("schema");
        Map<String, Object> options = new HashMap<>();
        request.get("options").fields().forEachRemaining(one -> options.put(one.getKey(), one.getValue().textValue()));
        Serializer<Object> serializer = schema == null ? null : serializer(format, options);
        Deserializer<?> deserializer = schema == null ? deserializer(format, options) : null;
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode text : request.get("texts")) {
            byte[] given = Base64.getDecoder().decode(text.textValue());
            byte[] found = schema == null
                    ? payload(deserializer.deserialize(topic, given))
                    : serializer.serialize(topic, value(format, schema.textValue(), given));
            answers.add(Base64.getEncoder().encodeToString(found));
        }
        return answers;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Serializer<Object> serializer(String format, Map<String, Object> options) {
        Serializer made = switch (format) {
            case "avro" -> new AvroKafkaSerializer<>();
            case "protobuf" -> new ProtobufKafkaSerializer<>();
            default -> new JsonSchemaKafkaSerializer<>();
        };
        made.configure(options, false);
        return made;
    }

    private static Deserializer<?> deserializer(String format, Map<String, Object> options) {
        Deserializer<?> made = switch (format) {
            case "avro" -> new AvroKafkaDeserializer<>();
            case "protobuf" -> new ProtobufKafkaDeserializer<>();
            default -> new JsonSchemaKafkaDeserializer<>();
        };
        made.configure(options, false);
        return made;
    }

    private static Object value(String format, String schema, byte[] payload) throws Exception {
        return switch (format) {
            case "avro" -> new GenericDatumReader<Object>(new Schema.Parser().parse(schema))
                    .read(null, DecoderFactory.get().binaryDecoder(payload, null));
            case "protobuf" -> DynamicMessage.parseFrom(message(schema), payload);
            default -> JSON.readTree(payload);
        };
    }

    private static Descriptor message(String schema) throws Exception {
        return FileDescriptorUtils.protoFileToFileDescriptor(schema, "schema.proto", java.util.Optional.of("shop"))
                .getMessageTypes().get(0);
    }

    private static byte[] payload(Object value) throws Exception {
        if (value instanceof DynamicMessage message) {
            return message.toByteArray();
        }
        if (value instanceof GenericContainer datum) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(out, null);
            new GenericDatumWriter<Object>(datum.getSchema()).write(datum, encoder);
            return out.toByteArray();
        }
        return JSON.writeValueAsBytes(value);
    }
}
