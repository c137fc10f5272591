import com.fasterxml.jackson.databind.JsonNode;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;

/**
 * Protobuf's own dynamic messages, and between them and structs what a message of optional numbers, texts and
 * timestamps needs: fields by their position, no more.
 */
final class ProtobufValues implements Values {
    private final Descriptor read;
    private final Descriptor written;
    private final FieldDescriptor[] inputs;
    private final FieldDescriptor[] outputs;
    private final Schema schema;
    private final Field[] fields;
    private final Map<Schema, Field[]> sources = new IdentityHashMap<>();

    ProtobufValues(JsonNode plan) throws Exception {
        read = descriptor(plan.get("reads").asText());
        written = descriptor(plan.get("writes").asText());
        inputs = read.getFields().toArray(new FieldDescriptor[0]);
        outputs = written.getFields().toArray(new FieldDescriptor[0]);
        SchemaBuilder struct = SchemaBuilder.struct().name(read.getName());
        for (FieldDescriptor field : inputs) {
            boolean text = field.getType() == FieldDescriptor.Type.STRING;
            struct.field(field.getName(), text ? Schema.OPTIONAL_STRING_SCHEMA : Schema.OPTIONAL_INT32_SCHEMA);
        }
        schema = struct.build();
        fields = schema.fields().toArray(new Field[0]);
    }

    /** The first message of the last file of a descriptor set. */
    private static Descriptor descriptor(String set) throws Exception {
        Map<String, FileDescriptor> files = new HashMap<>();
        FileDescriptor last = null;
        for (FileDescriptorProto file : FileDescriptorSet.parseFrom(Base64.getDecoder().decode(set)).getFileList()) {
            FileDescriptor[] imports = file.getDependencyList().stream().map(files::get).toArray(FileDescriptor[]::new);
            last = FileDescriptor.buildFrom(file, imports);
            files.put(file.getName(), last);
        }
        return last.getMessageTypes().get(0);
    }

    @Override
    public SchemaAndValue read(String topic, byte[] value) throws Exception {
        DynamicMessage message = DynamicMessage.parseFrom(read, value);
        Struct struct = new Struct(schema);
        for (int at = 0; at < fields.length; at++) {
            struct.put(fields[at], message.hasField(inputs[at]) ? message.getField(inputs[at]) : null);
        }
        return new SchemaAndValue(schema, struct);
    }

    @Override
    public byte[] write(String topic, Schema schema, Object value) {
        Struct struct = (Struct) value;
        Field[] found = sources.computeIfAbsent(schema, this::find);
        DynamicMessage.Builder message = DynamicMessage.newBuilder(written);
        for (int at = 0; at < found.length; at++) {
            Object item = struct.get(found[at]);
            if (item != null) {
                message.setField(outputs[at], item instanceof Date moment ? timestamp(outputs[at], moment) : item);
            }
        }
        return message.build().toByteArray();
    }

    private static DynamicMessage timestamp(FieldDescriptor field, Date moment) {
        Descriptor type = field.getMessageType();
        DynamicMessage.Builder message = DynamicMessage.newBuilder(type);
        message.setField(type.findFieldByNumber(1), Math.floorDiv(moment.getTime(), 1000L));
        message.setField(type.findFieldByNumber(2), (int) Math.floorMod(moment.getTime(), 1000L) * 1_000_000);
        return message.build();
    }

    private Field[] find(Schema schema) {
        Field[] found = new Field[outputs.length];
        for (int at = 0; at < found.length; at++) {
            found[at] = schema.field(outputs[at].getName());
        }
        return found;
    }
}
