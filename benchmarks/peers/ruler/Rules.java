import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import software.amazon.event.ruler.Machine;

/**
 * event-ruler over rules and events in memory.
 *
 * <p>Argument: a file of rules, {@code {"id": …, "rule": {…}}} on each line. Commands on standard input, each answered by
 * one line of JSON: {@code load FILE} reads events, one on each line; {@code pass THREADS} matches every event, each
 * thread its share, and tells the seconds; {@code refused} tells the ids of rules that are not taken, each with the
 * reason; {@code write FILE} writes the ids that each event matches, a JSON list on
 * each line.
 */
public final class Rules {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final Machine machine = new Machine();
    private List<String> events = List.of();
    private final double building;
    private final ObjectNode refused = JSON.createObjectNode();
    private int rules;

    private Rules(Path rules) throws Exception {
        long begun = System.nanoTime();
        try (BufferedReader lines = Files.newBufferedReader(rules)) {
            for (String line; (line = lines.readLine()) != null; this.rules++) {
                JsonNode given = JSON.readTree(line);
                String id = given.get("id").asText();
                try {
                    machine.addRule(id, given.get("rule").toString());
                } catch (Exception refusal) {
                    refused.put(id, refusal.getMessage());
                }
            }
        }
        building = (System.nanoTime() - begun) / 1e9;
    }

    private ObjectNode load(Path file) throws Exception {
        events = Files.readAllLines(file);
        return JSON.createObjectNode().put("events", events.size());
    }

    private record Share(long matched, long nanoseconds) {}

    private Share match(List<String> share) throws Exception {
        long begun = THREADS.getCurrentThreadCpuTime();
        long matched = 0;
        for (String event : share) {
            matched += machine.rulesForJSONEvent(event).size();
        }
        return new Share(matched, THREADS.getCurrentThreadCpuTime() - begun);
    }

    private ObjectNode pass(int threads, ExecutorService pool) throws Exception {
        long begun = System.nanoTime();
        List<Future<Share>> running = new ArrayList<>();
        for (int one = 0; one < threads; one++) {
            int from = events.size() * one / threads;
            int to = events.size() * (one + 1) / threads;
            running.add(pool.submit(() -> match(events.subList(from, to))));
        }
        long matched = 0;
        long cpu = 0;
        for (Future<Share> one : running) {
            matched += one.get().matched;
            cpu += one.get().nanoseconds;
        }
        return JSON.createObjectNode()
                .put("cpu", cpu / 1e9)
                .put("wall", (System.nanoTime() - begun) / 1e9)
                .put("matched", matched);
    }

    private ObjectNode write(Path file) throws Exception {
        try (BufferedWriter writer = Files.newBufferedWriter(file)) {
            for (String event : events) {
                // With arrays in an event a rule may be named more than once.
                List<String> ids = new ArrayList<>(new HashSet<>(machine.rulesForJSONEvent(event)));
                writer.write(JSON.writeValueAsString(ids));
                writer.newLine();
            }
        }
        return JSON.createObjectNode().put("rules", rules).put("events", events.size()).put("building", building);
    }

    public static void main(String[] arguments) throws Exception {
        Rules rules = new Rules(Path.of(arguments[0]));
        ExecutorService pool = Executors.newFixedThreadPool(8);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            String[] words = line.split(" ", 2);
            System.out.println(
                    switch (words[0]) {
                        case "load" -> rules.load(Path.of(words[1]));
                        case "refused" -> rules.refused;
                        case "pass" -> rules.pass(Integer.parseInt(words[1]), pool);
                        default -> rules.write(Path.of(words[1]));
                    });
        }
        pool.shutdown();
    }
}
