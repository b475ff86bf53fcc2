package peeklock;

import static com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderAsyncClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;

/** Sending: results, pipelining, batches, sizes. */
class SendTest extends Scenario {
    private static byte[] random(int bytes) {
        byte[] body = new byte[bytes];
        new Random(bytes).nextBytes(body);
        return body;
    }

    private static ServiceBusMessage binary(byte[] body) {
        return new ServiceBusMessage(BinaryData.fromBytes(body));
    }

    @Test
    @DisplayName("T.1 a send waits for the broker's word and the message is there")
    void send() {
        String name = queue();
        ServiceBusSenderClient sender = sender(1, name);
        sender.sendMessage(message("hello").setMessageId("one"));
        countsBecome(name, "active", 1, "locked", 0, "deferred", 0, "deadLetter", 0);
        sender.sendMessages(List.of(message("1"), message("2"), message("3"))); // travels as a batch
        countsBecome(name, "active", 4);
    }

    @Test
    @DisplayName("T.1 too large a message is refused for good and the link lives on")
    void tooLarge() {
        String name = queue(); // 256 KiB by default
        ServiceBusSenderClient sender = sender(1, name);
        ServiceBusException error = refused(MESSAGE_SIZE_EXCEEDED, () -> sender.sendMessage(binary(random(300 * 1024))));
        assertFalse(error.isTransient());
        sender.sendMessage(message("small"));
        countsBecome(name, "active", 1);
    }

    @Test
    @DisplayName("T.2 300 sends in flight on one link are all confirmed")
    void inFlight() {
        String name = queue();
        ServiceBusSenderAsyncClient sender = closing(member(1).sender().queueName(name).buildAsyncClient());
        Flux.fromIterable(numbered(300)).flatMap(sender::sendMessage, 300).then().block(Duration.ofSeconds(20));
        countsBecome(name, "active", 300);
        ServiceBusReceiverClient receiver = deleting(2, name);
        List<String> got = new ArrayList<>(bodies(take(receiver, 150)));
        got.addAll(bodies(take(receiver, 150)));
        got.sort(java.util.Comparator.comparing(Integer::valueOf));
        assertEquals(upTo(300), got, "each once");
    }

    @Test
    @DisplayName("T.2 sends of two links overlap on one connection")
    void twoLinks() {
        String first = queue();
        String second = queue();
        List<ServiceBusSenderAsyncClient> senders = List.of(
            closing(member(2).sender().queueName(first).buildAsyncClient()),
            closing(member(2).sender().queueName(second).buildAsyncClient()));
        Flux.range(0, 100)
            .flatMap(i -> senders.get(i % 2).sendMessage(message("" + i)), 100)
            .then()
            .block(Duration.ofSeconds(20));
        countsBecome(first, "active", 50);
        countsBecome(second, "active", 50);
    }

    @Test
    @DisplayName("T.1 a batch is stored as its messages, in order")
    void batch() {
        String name = queue();
        ServiceBusSenderClient sender = sender(1, name);
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        assertTrue(batch.getMaxSizeInBytes() >= 256 * 1024, "room for " + batch.getMaxSizeInBytes() + " bytes");
        for (ServiceBusMessage message : numbered(200)) {
            message.getApplicationProperties().put("n", message.getBody().toString());
            assertTrue(batch.tryAddMessage(message));
        }
        assertEquals(200, batch.getCount());
        sender.sendMessages(batch);
        countsBecome(name, "active", 200);
        List<ServiceBusReceivedMessage> got = take(deleting(3, name), 200);
        assertEquals(upTo(200), bodies(got));
        assertEquals(numbered(200).stream().map(ServiceBusMessage::getMessageId).toList(),
            got.stream().map(ServiceBusReceivedMessage::getMessageId).toList());
        assertEquals(upTo(200), got.stream().map(m -> m.getApplicationProperties().get("n")).toList(),
            "inner ones, not the envelope's");
    }

    @Test
    @DisplayName("T.1 a batch takes no more than the link allows and a full one is stored")
    void fullBatch() {
        String name = queue();
        ServiceBusSenderClient sender = sender(2, name);
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        byte[] piece = random(10 * 1024);
        while (batch.tryAddMessage(binary(piece))) {
            assertTrue(batch.getCount() < 1000, "a batch must become full");
        }
        assertTrue(batch.getCount() >= 24, batch.getCount() + " messages of 10 KiB in 256 KiB");
        sender.sendMessages(batch);
        countsBecome(name, "active", batch.getCount());
        for (ServiceBusReceivedMessage message : take(deleting(1, name), batch.getCount())) {
            assertArrayEquals(piece, message.getBody().toBytes());
        }
    }

    @Test
    @DisplayName("T.1 bodies of 256 KiB and nearly 1 MiB travel over many frames, both ways")
    void manyFrames() {
        String name = queue("maxMessageBytes", 1024 * 1024);
        ServiceBusSenderClient sender = sender(1, name);
        List<byte[]> sent = List.of(random(256 * 1024), random(1000 * 1024), random(1));
        sent.forEach(body -> sender.sendMessage(binary(body)));
        ServiceBusReceiverClient receiver = receiver(3, name);
        List<ServiceBusReceivedMessage> got = take(receiver, sent.size());
        IntStream.range(0, sent.size()).forEach(i -> {
            assertArrayEquals(sent.get(i), got.get(i).getBody().toBytes());
            receiver.complete(got.get(i));
        });
        countsBecome(name, "active", 0);
    }

    @Test
    @DisplayName("C.7 an answer comes back through a reply queue, correlated")
    void reply() {
        String requests = queue();
        String replies = queue();
        sender(1, requests).sendMessage(message("6*7").setMessageId("question").setReplyTo(replies));
        ServiceBusReceiverClient server = receiver(2, requests);
        ServiceBusReceivedMessage question = takeOne(server);
        sender(2, question.getReplyTo()).sendMessage(message("42").setCorrelationId(question.getMessageId()));
        server.complete(question);
        ServiceBusReceivedMessage answer = takeOne(deleting(1, replies));
        assertEquals("42", answer.getBody().toString());
        assertEquals("question", answer.getCorrelationId());
    }
}
