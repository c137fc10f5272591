import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Date;
import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;

/**
 * Avro's own reader and writer of generic records, and between them and structs what a record of optional numbers and
 * texts needs: fields by their position, no more.
 */
final class AvroValues implements Values {
    private final Schema schema;
    private final Field[] fields;
    private final org.apache.avro.Schema written;
    private final GenericDatumReader<GenericRecord> reader;
    private final GenericDatumWriter<GenericRecord> writer;
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream(512);
    private final Map<Schema, Field[]> sources = new IdentityHashMap<>();
    private BinaryDecoder decoder;
    private BinaryEncoder encoder;

    AvroValues(JsonNode plan) {
        org.apache.avro.Schema read = new org.apache.avro.Schema.Parser().parse(plan.get("reads").asText());
        written = new org.apache.avro.Schema.Parser().parse(plan.get("writes").asText());
        SchemaBuilder struct = SchemaBuilder.struct().name(read.getFullName());
        for (org.apache.avro.Schema.Field field : read.getFields()) {
            org.apache.avro.Schema type = field.schema().getTypes().get(1);
            if (type.getType() == org.apache.avro.Schema.Type.STRING) {
                // Texts as String at once: they would come as Utf8, and be copied.
                GenericData.setStringType(type, GenericData.StringType.String);
                struct.field(field.name(), Schema.OPTIONAL_STRING_SCHEMA);
            } else {
                struct.field(field.name(), Schema.OPTIONAL_INT32_SCHEMA);
            }
        }
        schema = struct.build();
        fields = schema.fields().toArray(new Field[0]);
        reader = new GenericDatumReader<>(read);
        writer = new GenericDatumWriter<>(written);
    }

    @Override
    public SchemaAndValue read(String topic, byte[] value) throws IOException {
        decoder = DecoderFactory.get().binaryDecoder(value, decoder);
        GenericRecord record = reader.read(null, decoder);
        Struct struct = new Struct(schema);
        for (int at = 0; at < fields.length; at++) {
            struct.put(fields[at], record.get(at));
        }
        return new SchemaAndValue(schema, struct);
    }

    @Override
    public byte[] write(String topic, Schema schema, Object value) throws IOException {
        Struct struct = (Struct) value;
        Field[] found = sources.computeIfAbsent(schema, this::find);
        GenericRecord record = new GenericData.Record(written);
        for (int at = 0; at < found.length; at++) {
            Object item = struct.get(found[at]);
            record.put(at, item instanceof Date moment ? (Object) moment.getTime() : item);
        }
        bytes.reset();
        encoder = EncoderFactory.get().directBinaryEncoder(bytes, encoder);
        writer.write(record, encoder);
        return bytes.toByteArray();
    }

    private Field[] find(Schema schema) {
        return written.getFields().stream().map(field -> schema.field(field.name())).toArray(Field[]::new);
    }
}
