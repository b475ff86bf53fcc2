package peeklock;

import static com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGE_LOCK_LOST;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverAsyncClient;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;

/** Settling in each way. The client takes an answer only if it is the outcome that it asked for. */
class SettleTest extends Scenario {
    @Test
    @DisplayName("T.9 complete removes the message, and only that one")
    void complete() {
        String name = filled(3);
        ServiceBusReceiverClient receiver = receiver(2, name);
        List<ServiceBusReceivedMessage> got = take(receiver, 3);
        receiver.complete(got.get(1));
        countsBecome(name, "active", 2, "locked", 2);
        receiver.complete(got.get(0));
        receiver.complete(got.get(2));
        countsBecome(name, "active", 0, "locked", 0, "deferred", 0, "deadLetter", 0);
    }

    @Test
    @DisplayName("T.2 500 completions in flight are each answered")
    void inFlight() throws InterruptedException {
        String name = filled(500);
        ServiceBusReceiverAsyncClient receiver = closing(member(2).receiver()
            .queueName(name)
            .disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO)
            .prefetchCount(100)
            .buildAsyncClient());
        // The link ends with its subscription, and the client then fails completions that it has just sent.
        BlockingQueue<ServiceBusReceivedMessage> arrived = new LinkedBlockingQueue<>();
        Disposable subscription = receiver.receiveMessages().subscribe(arrived::add);
        List<ServiceBusReceivedMessage> got = new ArrayList<>();
        while (got.size() < 500) {
            got.add(assertInstanceOf(ServiceBusReceivedMessage.class, arrived.poll(20, TimeUnit.SECONDS)));
        }
        Flux.fromIterable(got).flatMap(receiver::complete, 500).then().block(Duration.ofSeconds(20));
        subscription.dispose();
        assertEquals(0, counts(name, 1).get("active"));
    }

    @Test
    @DisplayName("T.13 settling twice is refused by the client itself")
    void twice() {
        String name = filled(1);
        ServiceBusReceiverClient receiver = receiver(1, name);
        ServiceBusReceivedMessage message = takeOne(receiver);
        receiver.complete(message);
        assertThrows(IllegalArgumentException.class, () -> receiver.complete(message));
    }

    @Test
    @DisplayName("T.10 abandon unlocks at once, with properties, and counts")
    void abandon() {
        String name = queue();
        ServiceBusMessage sent = message("b").setMessageId("abandoned");
        sent.getApplicationProperties().putAll(Map.of("kept", "k", "changed", "old"));
        sender(3, name).sendMessage(sent);
        ServiceBusReceiverClient receiver = receiver(3, name);
        ServiceBusReceivedMessage first = takeOne(receiver);
        receiver.abandon(first, new AbandonOptions().setPropertiesToModify(Map.of("changed", "new", "added", 7, "flag", true)));
        ServiceBusReceivedMessage second = takeOne(receiver(1, name));
        assertEquals("abandoned", second.getMessageId());
        assertEquals("b", second.getBody().toString());
        assertEquals(1, second.getDeliveryCount());
        assertEquals(Map.of("kept", "k", "changed", "new", "added", 7, "flag", true), second.getApplicationProperties());
        assertEquals(first.getSequenceNumber(), second.getSequenceNumber());
        assertEquals(first.getEnqueuedTime(), second.getEnqueuedTime());
        assertNotEquals(first.getLockToken(), second.getLockToken());
    }

    @Test
    @DisplayName("T.10 abandon with a delivery time delays the message")
    void abandonDelayed() {
        String name = filled(1);
        ServiceBusReceiverClient receiver = receiver(2, name);
        Instant due = Instant.now().plusSeconds(2).truncatedTo(ChronoUnit.MILLIS);
        receiver.abandon(takeOne(receiver), new AbandonOptions()
            .setPropertiesToModify(Map.of("x-opt-delivery-time", Date.from(due), "kept", "property")));
        ServiceBusReceivedMessage again = takeOne(receiver);
        assertFalse(Instant.now().isBefore(due));
        assertEquals(1, again.getDeliveryCount());
        assertEquals(Map.of("kept", "property"), again.getApplicationProperties());
    }

    @Test
    @DisplayName("T.7 an abandoned message is back at the front")
    void front() {
        String name = filled(5);
        ServiceBusReceiverClient receiver = receiver(1, name);
        List<ServiceBusReceivedMessage> first = take(receiver, 2);
        receiver.abandon(first.get(1));
        receiver.abandon(first.get(0));
        assertEquals(upTo(5), bodies(take(deleting(2, name), 5)));
    }

    @Test
    @DisplayName("T.12 defer, with properties, and receive by sequence number at any member")
    void defer() {
        String name = filled(3);
        ServiceBusReceiverClient receiver = receiver(2, name);
        List<ServiceBusReceivedMessage> got = take(receiver, 3);
        receiver.defer(got.get(0), new DeferOptions().setPropertiesToModify(Map.of("why", "later")));
        receiver.defer(got.get(2));
        receiver.complete(got.get(1));
        countsBecome(name, "active", 0, "deferred", 2);
        nothing(receiver);

        ServiceBusReceiverClient elsewhere = receiver(3, name);
        ServiceBusReceivedMessage first = elsewhere.receiveDeferredMessage(got.get(0).getSequenceNumber());
        List<ServiceBusReceivedMessage> last =
            elsewhere.receiveDeferredMessageBatch(List.of(got.get(2).getSequenceNumber())).stream().toList();
        assertEquals("0", first.getBody().toString());
        assertEquals(List.of("2"), bodies(last));
        assertEquals(Map.of("why", "later"), first.getApplicationProperties());
        assertEquals(ServiceBusMessageState.DEFERRED, first.getState());
        assertTrue(first.getLockedUntil().isAfter(OffsetDateTime.now()));
        OffsetDateTime before = first.getLockedUntil();
        assertFalse(elsewhere.renewMessageLock(first).isBefore(before));
        elsewhere.complete(first);
        elsewhere.deadLetter(last.get(0), new DeadLetterOptions()
            .setDeadLetterReason("stale").setDeadLetterErrorDescription("deferred too long"));
        countsBecome(name, "active", 0, "deferred", 0, "deadLetter", 1);
        ServiceBusReceivedMessage dead = takeOne(deletingDeadLetters(2, name));
        assertEquals("stale", dead.getDeadLetterReason());
        assertEquals("deferred too long", dead.getDeadLetterErrorDescription());
    }

    @Test
    @DisplayName("T.12 a deferred message that is abandoned or deferred again stays deferred")
    void deferredAgain() {
        String name = filled(1);
        ServiceBusReceiverClient receiver = receiver(1, name);
        ServiceBusReceivedMessage message = takeOne(receiver);
        receiver.defer(message);
        receiver.abandon(receiver.receiveDeferredMessage(message.getSequenceNumber()));
        receiver.defer(receiver.receiveDeferredMessage(message.getSequenceNumber()));
        countsBecome(name, "active", 0, "deferred", 1, "locked", 0);
        assertEquals("0", deleting(2, name).receiveDeferredMessage(message.getSequenceNumber()).getBody().toString());
        countsBecome(name, "deferred", 0);
    }

    /** The client turns the refusal, 404 with message-not-found, into an answer without messages. */
    @Test
    @DisplayName("T.12 only deferred messages are received by sequence number")
    void notDeferred() {
        String name = filled(2);
        ServiceBusReceiverClient receiver = receiver(1, name);
        long active = receiver.peekMessage().getSequenceNumber();
        assertEquals(List.of(), bodies(receiver.receiveDeferredMessageBatch(List.of(active))));
        assertEquals(List.of(), bodies(receiver.receiveDeferredMessageBatch(List.of(active + 1_000))));
        assertEquals(2, take(receiver, 2).size());
    }

    @Test
    @DisplayName("T.11 dead-letter with reason, description and properties")
    void deadLetter() {
        String name = queue();
        ServiceBusMessage sent = message("poison").setMessageId("bad");
        sent.getApplicationProperties().put("kept", 1);
        sender(2, name).sendMessage(sent);
        ServiceBusReceiverClient receiver = receiver(2, name);
        receiver.deadLetter(takeOne(receiver), new DeadLetterOptions()
            .setDeadLetterReason("cannot parse")
            .setDeadLetterErrorDescription("unexpected token")
            .setPropertiesToModify(Map.of("line", 12)));
        countsBecome(name, "active", 0, "locked", 0, "deadLetter", 1);
        nothing(receiver);

        ServiceBusReceiverClient dead = deadLetters(3, name);
        assertEquals("cannot parse", dead.peekMessage().getDeadLetterReason());
        ServiceBusReceivedMessage message = takeOne(dead);
        assertEquals("poison", message.getBody().toString());
        assertEquals("bad", message.getMessageId());
        assertEquals("cannot parse", message.getDeadLetterReason());
        assertEquals("unexpected token", message.getDeadLetterErrorDescription());
        assertEquals(1, message.getApplicationProperties().get("kept"));
        assertEquals(12, message.getApplicationProperties().get("line"));
        dead.complete(message);
        countsBecome(name, "deadLetter", 0);
    }

    @Test
    @DisplayName("T.11 dead-letter without a reason; the dead-letter queue has locks of its own")
    void deadLetterQueue() {
        String name = filled(1);
        ServiceBusReceiverClient receiver = receiver(1, name);
        receiver.deadLetter(takeOne(receiver));
        ServiceBusReceiverClient dead = deadLetters(1, name);
        ServiceBusReceivedMessage first = takeOne(dead);
        assertNull(first.getDeadLetterReason());
        dead.abandon(first);
        ServiceBusReceivedMessage second = takeOne(dead);
        assertEquals("0", second.getBody().toString());
        OffsetDateTime before = second.getLockedUntil();
        assertFalse(dead.renewMessageLock(second).isBefore(before));
        dead.defer(second);
        dead.complete(dead.receiveDeferredMessage(second.getSequenceNumber()));
        countsBecome(name, "active", 0, "deferred", 0, "deadLetter", 0);
    }

    @Test
    @DisplayName("T.8 abandoned too often: dead-lettered with the reason that clients know")
    void tooOften() {
        String name = filled(1, "maxDeliveryCount", 3);
        ServiceBusReceiverClient receiver = receiver(2, name);
        for (int attempt = 0; attempt < 3; attempt++) {
            ServiceBusReceivedMessage message = takeOne(receiver);
            assertEquals(attempt, message.getDeliveryCount());
            receiver.abandon(message, new AbandonOptions().setPropertiesToModify(Map.of("attempt", attempt)));
        }
        nothing(receiver);
        countsBecome(name, "active", 0, "deadLetter", 1);
        ServiceBusReceivedMessage dead = takeOne(deletingDeadLetters(3, name));
        assertEquals("MaxDeliveryCountExceeded", dead.getDeadLetterReason());
        assertEquals(2, dead.getApplicationProperties().get("attempt"));
    }

    @Test
    @DisplayName("T.8 locked too often: dead-lettered as well, with nobody receiving")
    void lockedTooOften() {
        String name = filled(1, "maxDeliveryCount", 1, "lockDuration", "5s");
        afterLock(takeOne(receiver(1, name)));
        countsBecome(name, "active", 0, "locked", 0, "deadLetter", 1);
        assertEquals("MaxDeliveryCountExceeded", takeOne(deletingDeadLetters(1, name)).getDeadLetterReason());
    }

    @Test
    @DisplayName("T.9 settlement after the link was closed, in each way")
    void closedLink() {
        String name = filled(4);
        ServiceBusReceiverClient closed = receiver(2, name);
        List<ServiceBusReceivedMessage> got = take(closed, 4);
        closed.close();
        countsBecome(name, "active", 4, "locked", 4); // locks outlive the link
        ServiceBusReceiverClient receiver = receiver(2, name);
        receiver.complete(got.get(0));
        receiver.defer(got.get(1), new DeferOptions().setPropertiesToModify(Map.of("deferred", true)));
        receiver.deadLetter(got.get(2), new DeadLetterOptions().setDeadLetterReason("closed").setDeadLetterErrorDescription("no link"));
        receiver.abandon(got.get(3), new AbandonOptions().setPropertiesToModify(Map.of("abandoned", true)));
        countsBecome(name, "active", 1, "locked", 0, "deferred", 1, "deadLetter", 1);
        ServiceBusReceivedMessage again = takeOne(receiver);
        assertEquals("3", again.getBody().toString());
        assertEquals(1, again.getDeliveryCount());
        assertEquals(true, again.getApplicationProperties().get("abandoned"));
        ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(got.get(1).getSequenceNumber());
        assertEquals(true, deferred.getApplicationProperties().get("deferred"));
        ServiceBusReceivedMessage dead = takeOne(deletingDeadLetters(2, name));
        assertEquals("closed", dead.getDeadLetterReason());
        assertEquals("no link", dead.getDeadLetterErrorDescription());
    }

    @Test
    @DisplayName("T.13 settlement after link and lock are gone is refused")
    void closedLinkTooLate() {
        String name = filled(1, "lockDuration", "5s");
        ServiceBusReceiverClient closed = receiver(2, name);
        ServiceBusReceivedMessage message = takeOne(closed);
        closed.close();
        afterLock(message);
        ServiceBusReceiverClient receiver = receiver(2, name);
        refused(MESSAGE_LOCK_LOST, () -> receiver.complete(message));
        countsBecome(name, "active", 1, "locked", 0);
    }
}
