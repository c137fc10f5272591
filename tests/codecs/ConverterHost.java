import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.storage.Converter;

/**
 * Reads and writes again with Kafka's own converters: one JSON request a line, one JSON answer a line.
 *
 * <p>A request names two converters, the one that reads and the one that writes, and gives texts in base64.
 */
public class ConverterHost {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            Converter from = made(request.get("from"));
            Converter to = made(request.get("to"));
            ArrayNode answers = JSON.createArrayNode();
            for (JsonNode text : request.get("texts")) {
                answers.add(rewritten(from, to, text.isNull() ? null : Base64.getDecoder().decode(text.textValue())));
            }
            System.out.println(JSON.writeValueAsString(answers));
            System.out.flush();
        }
    }

    private static Converter made(JsonNode config) throws Exception {
        Map<String, Object> options = new HashMap<>();
        config.get("options").fields().forEachRemaining(one -> options.put(one.getKey(), one.getValue().textValue()));
        Converter made = (Converter) Class.forName(config.get("class").textValue()).getConstructor().newInstance();
        made.configure(options, false);
        return made;
    }

    private static ObjectNode rewritten(Converter from, Converter to, byte[] text) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            SchemaAndValue read = from.toConnectData("topic", text);
            byte[] written = to.fromConnectData("topic", read.schema(), read.value());
            return answer.put("text", written == null ? null : Base64.getEncoder().encodeToString(written));
        } catch (RuntimeException thrown) {
            return answer.put("error", thrown.getClass().getName());
        }
    }
}
