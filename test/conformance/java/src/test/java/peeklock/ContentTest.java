package peeklock;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.models.AmqpAnnotatedMessage;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What a message carries, and that it comes back as it went. */
class ContentTest extends Scenario {
    /** Sends a message at member 1 and takes it from member 2. */
    private ServiceBusReceivedMessage there(ServiceBusMessage message) {
        String name = queue();
        sender(1, name).sendMessage(message);
        return takeOne(deleting(2, name));
    }

    @Test
    @DisplayName("T.15 system properties come back as they were sent")
    void systemProperties() {
        ServiceBusReceivedMessage got = there(message("text")
            .setMessageId("x".repeat(128))
            .setCorrelationId("cor-1")
            .setContentType("text/plain")
            .setSubject("subject")
            .setTo("somewhere")
            .setReplyTo("reply-queue")
            .setReplyToSessionId("reply-session")
            .setSessionId("session")
            .setPartitionKey("session") // the client lets it equal the session id only
            .setTimeToLive(Duration.ofHours(1)));
        assertEquals("text", got.getBody().toString());
        assertEquals("x".repeat(128), got.getMessageId());
        assertEquals("cor-1", got.getCorrelationId());
        assertEquals("text/plain", got.getContentType());
        assertEquals("subject", got.getSubject());
        assertEquals("somewhere", got.getTo());
        assertEquals("reply-queue", got.getReplyTo());
        assertEquals("reply-session", got.getReplyToSessionId());
        assertEquals("session", got.getSessionId());
        assertEquals("session", got.getPartitionKey());
        assertEquals(Duration.ofHours(1), got.getTimeToLive());
        assertEquals(got.getEnqueuedTime().plusHours(1), got.getExpiresAt());
        assertEquals(0, got.getDeliveryCount());
        assertEquals(ServiceBusMessageState.ACTIVE, got.getState());
    }

    @Test
    @DisplayName("T.15 application properties of every type")
    void applicationProperties() {
        Map<String, Object> properties = new LinkedHashMap<>();
        properties.put("text", "žluťoučký kůň 🐎");
        properties.put("empty", "");
        properties.put("byte", (byte) -7);
        properties.put("short", (short) 300);
        properties.put("int", -2_000_000_000);
        properties.put("long", 1L << 40);
        properties.put("float", 1.5f);
        properties.put("double", Double.MIN_VALUE);
        properties.put("yes", true);
        properties.put("no", false);
        properties.put("char", 'ž');
        properties.put("uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"));
        properties.put("date", Date.from(Instant.parse("2024-02-29T12:34:56.789Z")));
        // These three travel as described types.
        properties.put("offsetDateTime", OffsetDateTime.of(2024, 2, 29, 12, 34, 56, 0, ZoneOffset.UTC));
        properties.put("duration", Duration.ofSeconds(90));
        properties.put("uri", URI.create("https://example.org/a?b=c"));
        ServiceBusMessage message = message("b");
        message.getApplicationProperties().putAll(properties);
        Map<String, Object> got = there(message).getApplicationProperties();
        properties.forEach((name, value) -> assertEquals(value, got.get(name), name));
        assertEquals(properties.keySet(), got.keySet());
    }

    @Test
    @DisplayName("T.1 bodies: bytes, an AMQP value and an AMQP sequence")
    void bodiesOfEachKind() {
        for (int bytes : new int[] {0, 1, 255, 256, 70_000}) {
            byte[] body = new byte[bytes];
            java.util.Arrays.fill(body, (byte) 0xa7);
            assertArrayEquals(body, there(new ServiceBusMessage(BinaryData.fromBytes(body))).getBody().toBytes());
        }
        for (Object value : List.of("text", 42, -42L, true, Map.of("key", "value"), List.of(1, 2, 3))) {
            AmqpMessageBody body = there(new ServiceBusMessage(AmqpMessageBody.fromValue(value))).getRawAmqpMessage().getBody();
            assertEquals(AmqpMessageBodyType.VALUE, body.getBodyType());
            assertEquals(value, body.getValue());
        }
        List<Object> sequence = List.of(1, "two", 3.0);
        AmqpMessageBody body = there(new ServiceBusMessage(AmqpMessageBody.fromSequence(sequence))).getRawAmqpMessage().getBody();
        assertEquals(AmqpMessageBodyType.SEQUENCE, body.getBodyType());
        assertEquals(sequence, body.getSequence());
    }

    /**
     * No footer, because the client writes keys of type string and cannot read them itself; no
     * annotations, because it sends none but its own.
     */
    @Test
    @DisplayName("T.1 the sections of an annotated message")
    void annotated() {
        ServiceBusMessage message = message("annotated").setMessageId("annotated-1");
        AmqpAnnotatedMessage raw = message.getRawAmqpMessage();
        raw.getHeader().setDurable(true).setPriority((short) 7);
        raw.getProperties().setContentEncoding("identity").setGroupSequence(3L);
        ServiceBusReceivedMessage got = there(message);
        AmqpAnnotatedMessage back = got.getRawAmqpMessage();
        assertEquals("annotated-1", got.getMessageId());
        assertEquals(true, back.getHeader().isDurable());
        assertEquals((short) 7, back.getHeader().getPriority());
        assertEquals("identity", back.getProperties().getContentEncoding());
        assertEquals(3L, back.getProperties().getGroupSequence());
    }

    @Test
    @DisplayName("T.5 the broker's annotations")
    void annotations() {
        String name = queue("lockDuration", "20s");
        OffsetDateTime before = OffsetDateTime.now();
        sender(1, name).sendMessages(List.of(message("1"), message("2")));
        List<ServiceBusReceivedMessage> got = take(receiver(1, name), 2);
        for (ServiceBusReceivedMessage message : got) {
            UUID.fromString(message.getLockToken());
            assertTrue(Duration.between(before, message.getEnqueuedTime()).abs().toSeconds() < 10);
            long locked = Duration.between(OffsetDateTime.now(), message.getLockedUntil()).toMillis();
            assertTrue(locked > 5_000 && locked <= 20_500, "locked for " + locked + " ms");
            assertEquals(0, message.getDeliveryCount());
            assertNull(message.getDeadLetterReason());
            assertNull(message.getDeadLetterSource());
        }
        assertEquals(List.of(1L, 2L), got.stream().map(ServiceBusReceivedMessage::getSequenceNumber).toList());
        assertNotEquals(got.get(0).getLockToken(), got.get(1).getLockToken());
    }

    @Test
    @DisplayName("C.9 a message that was received can be sent on as it is")
    void sentOn() {
        String first = queue();
        String second = queue();
        ServiceBusMessage message = message("passed").setMessageId("passed");
        message.getApplicationProperties().put("p", 1);
        sender(1, first).sendMessage(message);
        ServiceBusReceiverClient receiver = receiver(1, first);
        ServiceBusReceivedMessage taken = takeOne(receiver);
        sender(1, second).sendMessage(new ServiceBusMessage(taken));
        receiver.complete(taken);
        ServiceBusReceivedMessage got = takeOne(deleting(2, second));
        assertEquals("passed", got.getBody().toString());
        assertEquals("passed", got.getMessageId());
        assertEquals(Map.of("p", 1), got.getApplicationProperties());
    }
}
