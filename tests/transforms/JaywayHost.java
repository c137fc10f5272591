import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.jayway.jsonpath.Configuration;
import com.jayway.jsonpath.JsonPath;
import com.jayway.jsonpath.PathNotFoundException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;

/** Evaluates paths of JSONPath: one JSON request a line, one JSON answer a line. */
public class JaywayHost {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            Object answer;
            try {
                Object document = Configuration.defaultConfiguration().jsonProvider().parse(request.get("document").asText());
                Object found = JsonPath.compile(request.get("path").asText()).read(document);
                answer = Collections.singletonList(found);
            } catch (PathNotFoundException missing) {
                answer = "missing";
            } catch (RuntimeException thrown) {
                answer = "error";
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }
}
