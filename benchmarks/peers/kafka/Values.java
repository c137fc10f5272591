import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;

/** Bytes to Connect's values and back, of one format. */
interface Values {
    SchemaAndValue read(String topic, byte[] value) throws Exception;

    byte[] write(String topic, Schema schema, Object value) throws Exception;
}
