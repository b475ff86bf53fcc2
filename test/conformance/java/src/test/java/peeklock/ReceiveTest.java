package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverAsyncClient;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Receiving: modes, competition, peeking, waiting; the synchronous and the asynchronous client. */
class ReceiveTest extends Scenario {
    @Test
    @DisplayName("T.4 receive and delete settles as it sends, in order")
    void receiveAndDelete() {
        String name = filled(50);
        ServiceBusReceiverClient receiver = deleting(2, name);
        List<ServiceBusReceivedMessage> got = take(receiver, 50);
        assertEquals(upTo(50), bodies(got));
        nothing(receiver);
        countsBecome(name, "active", 0, "locked", 0);
    }

    /**
     * Never more than 256 at a time, here and elsewhere: when messages come faster than the
     * client hands them on, its buffer of 256 runs over, and it drops what comes next.
     */
    @Test
    @DisplayName("T.4 1,000 messages, by 250 in one call")
    void many() {
        String name = queue();
        ServiceBusSenderClient sender = sender(1, name);
        List<ServiceBusMessage> all = numbered(1000);
        for (int from = 0; from < all.size(); from += 500) {
            sender.sendMessages(all.subList(from, from + 500));
        }
        ServiceBusReceiverClient receiver = deleting(3, name);
        List<ServiceBusReceivedMessage> got = new ArrayList<>();
        for (int call = 0; call < 4; call++) {
            got.addAll(take(receiver, 250));
        }
        assertEquals(upTo(1000), bodies(got));
    }

    @Test
    @DisplayName("T.5 a locked message is hidden from others, who lock the next ones")
    void hidden() {
        String name = filled(2);
        ServiceBusReceiverClient first = receiver(1, name);
        ServiceBusReceiverClient second = receiver(2, name);
        ServiceBusReceivedMessage a = takeOne(first);
        ServiceBusReceivedMessage b = takeOne(second);
        assertEquals(List.of("0", "1"), bodies(List.of(a, b)));
        nothing(second);
        countsBecome(name, "active", 2, "locked", 2);
        second.complete(b);
        first.complete(a);
        countsBecome(name, "active", 0, "locked", 0);
    }

    @Test
    @DisplayName("T.5 a waiting receiver gets a message as soon as it is sent")
    void waiting() throws Exception {
        String name = queue();
        ServiceBusReceiverClient receiver = receiver(3, name);
        CompletableFuture<List<ServiceBusReceivedMessage>> waiting = CompletableFuture.supplyAsync(
            () -> receiver.receiveMessages(1, Duration.ofSeconds(20)).stream().toList());
        sleep(Duration.ofMillis(700)); // let the receiver wait
        Instant sent = Instant.now();
        sender(1, name).sendMessage(message("at last"));
        List<ServiceBusReceivedMessage> got = waiting.get();
        assertEquals(List.of("at last"), bodies(got));
        assertTrue(Duration.between(sent, Instant.now()).toMillis() < 5_000);
        receiver.complete(got.get(0));
    }

    /** The client cannot take its credit back; it hands back what arrives on it when nobody asks. */
    @Test
    @DisplayName("T.5 a message that arrives while nobody asks is handed back, uncounted")
    void handedBack() {
        String name = queue("maxDeliveryCount", 1);
        ServiceBusReceiverClient receiver = receiver(1, name);
        assertEquals(List.of(), bodies(receiver.receiveMessages(10, Duration.ofMillis(300))));
        sender(2, name).sendMessages(numbered(3));
        ServiceBusReceiverClient other = receiver(3, name);
        List<ServiceBusReceivedMessage> got = take(other, 3);
        got.forEach(m -> assertEquals(0, m.getDeliveryCount()));
        got.forEach(other::complete);
        countsBecome(name, "active", 0, "locked", 0, "deadLetter", 0);
    }

    @Test
    @DisplayName("T.5 no message is lost or doubled by receivers that ask for little and wait for little")
    void littleByLittle() throws Exception {
        String name = queue("maxDeliveryCount", 1); // a message that was lost on the way would be seen
        ServiceBusReceiverClient receiver = receiver(2, name);
        ServiceBusSenderClient sender = sender(1, name);
        CompletableFuture<Void> sending = CompletableFuture.runAsync(() -> {
            for (ServiceBusMessage message : numbered(40)) {
                sender.sendMessage(message);
                sleep(Duration.ofMillis(10));
            }
        });
        List<String> seen = new ArrayList<>();
        Instant deadline = Instant.now().plusSeconds(30);
        while (seen.size() < 40 && Instant.now().isBefore(deadline)) {
            receiver.receiveMessages(3, Duration.ofMillis(60)).forEach(message -> {
                seen.add(message.getBody().toString());
                receiver.complete(message);
            });
        }
        sending.get();
        seen.sort(java.util.Comparator.comparing(Integer::valueOf));
        assertEquals(upTo(40), seen);
        countsBecome(name, "active", 0, "locked", 0, "deadLetter", 0);
    }

    @Test
    @DisplayName("T.12 peek shows active, locked and deferred messages and touches none")
    void peek() {
        String name = filled(5);
        ServiceBusReceiverClient receiver = receiver(2, name);
        List<ServiceBusReceivedMessage> got = take(receiver, 2);
        receiver.defer(got.get(1));
        ServiceBusReceiverClient peeker = receiver(3, name);
        List<ServiceBusReceivedMessage> peeked = peeker.peekMessages(3).stream().toList();
        assertEquals(List.of("0", "1", "2"), bodies(peeked), "from the first one");
        assertEquals(List.of(ServiceBusMessageState.ACTIVE, ServiceBusMessageState.DEFERRED, ServiceBusMessageState.ACTIVE),
            peeked.stream().map(ServiceBusReceivedMessage::getState).toList());
        assertEquals(List.of("3", "4"), bodies(peeker.peekMessages(10)), "goes on where it was");
        assertEquals(List.of(), bodies(peeker.peekMessages(10)), "and ends");
        assertEquals(List.of("1", "2"), bodies(peeker.peekMessages(2, peeked.get(1).getSequenceNumber())));
        assertEquals("0", peeker.peekMessage(0).getBody().toString());
        receiver.complete(got.get(0));
        countsBecome(name, "active", 3, "locked", 0, "deferred", 1);
    }

    @Test
    @DisplayName("T.9 the asynchronous client completes by itself what its subscriber took")
    void asynchronous() {
        String name = filled(60);
        ServiceBusReceiverAsyncClient receiver = closing(member(2).receiver().queueName(name).prefetchCount(20).buildAsyncClient());
        List<String> seen = receiver.receiveMessages()
            .map(m -> m.getBody().toString())
            .take(60)
            .collectList()
            .block(Duration.ofSeconds(20));
        assertEquals(upTo(60), seen);
        countsBecome(name, "active", 0, "locked", 0, "deadLetter", 0);
    }

    @Test
    @DisplayName("T.9 the asynchronous client leaves settling to its subscriber when told so")
    void asynchronousByHand() {
        String name = filled(30);
        ServiceBusReceiverAsyncClient receiver = closing(member(3).receiver()
            .queueName(name).disableAutoComplete().prefetchCount(10).buildAsyncClient());
        Long settled = receiver.receiveMessages()
            .flatMap(m -> receiver.complete(m).thenReturn(m), 10)
            .take(30)
            .count()
            .block(Duration.ofSeconds(20));
        assertEquals(30, settled);
        countsBecome(name, "active", 0, "locked", 0);
    }

    @Test
    @DisplayName("T.4 receive and delete with prefetch")
    void prefetched() {
        String name = filled(100);
        ServiceBusReceiverClient receiver = closing(member(1).receiver()
            .queueName(name)
            .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE)
            .prefetchCount(30)
            .buildClient());
        assertEquals(upTo(100), bodies(take(receiver, 100)));
        countsBecome(name, "active", 0);
    }

    @Test
    @DisplayName("T.12 peek pages through more than fits in one answer")
    void peekPages() {
        String name = queue();
        ServiceBusSenderClient sender = sender(1, name);
        for (int i = 0; i < 15; i++) {
            sender.sendMessage(new ServiceBusMessage(new byte[100 * 1024]).setMessageId("m-" + i));
        }
        ServiceBusReceiverClient peeker = receiver(2, name);
        List<String> seen = new ArrayList<>();
        while (seen.size() < 15) {
            List<ServiceBusReceivedMessage> page = peeker.peekMessages(100).stream().toList();
            assertFalse(page.isEmpty(), "an empty page after " + seen.size() + " of 15");
            page.forEach(m -> seen.add(m.getMessageId()));
        }
        assertEquals(numbered(15).stream().map(ServiceBusMessage::getMessageId).toList(), seen);
    }
}
