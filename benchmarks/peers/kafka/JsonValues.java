import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;

/** JSON by Kafka's JsonConverter, with a schema or (null) without. */
final class JsonValues implements Values {
    private final JsonConverter in = new JsonConverter();
    private final JsonConverter out = new JsonConverter();

    JsonValues(JsonNode plan) {
        JsonNode schema = plan.get("schema");
        Map<String, String> schemaless = Map.of("schemas.enable", "false");
        Map<String, String> typed = Map.of("schemas.enable", "true", "schema.content", schema.toString());
        in.configure(schema.isNull() ? schemaless : typed, false);
        out.configure(schemaless, false);
    }

    @Override
    public SchemaAndValue read(String topic, byte[] value) {
        return in.toConnectData(topic, value);
    }

    @Override
    public byte[] write(String topic, Schema schema, Object value) {
        return out.fromConnectData(topic, schema, value);
    }
}
