package peeklock;

import static com.azure.core.amqp.exception.AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED;
import static com.azure.messaging.servicebus.ServiceBusFailureReason.SESSION_LOCK_LOST;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Sessions: named and next, order, state, locks, the session processor. */
class SessionTest extends Scenario {
    private ServiceBusSessionReceiverClient sessions(int member, String queue) {
        return closing(member(member).sessionReceiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    /** n messages of a session; their bodies tell the session and the place in it. */
    private static List<ServiceBusMessage> of(String session, int n) {
        List<ServiceBusMessage> messages = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            messages.add(message(session + i).setSessionId(session));
        }
        return messages;
    }

    private String filled(Object... settings) {
        List<Object> all = new ArrayList<>(List.of("requiresSession", true));
        all.addAll(List.of(settings));
        String name = queue(all.toArray());
        sender(1, name).sendMessages(of("a", 3));
        sender(2, name).sendMessages(of("b", 2));
        return name;
    }

    @Test
    @DisplayName("a session by its name: its messages in order, and nobody else's")
    void named() {
        String name = filled();
        ServiceBusReceiverClient b = closing(sessions(2, name).acceptSession("b"));
        assertEquals("b", b.getSessionId());
        List<ServiceBusReceivedMessage> got = take(b, 2);
        assertEquals(List.of("b0", "b1"), bodies(got));
        assertEquals("b", got.get(0).getSessionId());
        got.forEach(b::complete);
        nothing(b);
        countsBecome(name, "active", 3, "locked", 0);
    }

    /** The client names the link after the session; both links are on one connection here. */
    @Test
    @DisplayName("sessions of one name of two queues do not meet")
    void oneName() {
        String first = filled();
        String second = filled();
        ServiceBusReceiverClient one = closing(sessions(1, first).acceptSession("a"));
        ServiceBusReceiverClient other = closing(sessions(1, second).acceptSession("a"));
        assertEquals(List.of("a0", "a1", "a2"), bodies(take(one, 3)));
        assertEquals(List.of("a0", "a1", "a2"), bodies(take(other, 3)));
        one.setSessionState(new byte[] {1});
        other.setSessionState(new byte[] {2});
        assertArrayEquals(new byte[] {1}, one.getSessionState());
        assertArrayEquals(new byte[] {2}, other.getSessionState());
    }

    @Test
    @DisplayName("the next session is one that nobody holds, the oldest message first")
    void next() {
        String name = filled();
        ServiceBusReceiverClient first = closing(sessions(1, name).acceptNextSession());
        ServiceBusReceiverClient second = closing(sessions(3, name).acceptNextSession());
        assertEquals(List.of("a", "b"), List.of(first.getSessionId(), second.getSessionId()));
        refusedByAmqp(SESSION_CANNOT_BE_LOCKED, () -> sessions(2, name).acceptSession("a"));
        take(first, 3).forEach(first::complete);
        first.close();
        // What it was given and had not settled would be back at once, and uncounted.
        take(second, 2);
        second.close();
        ServiceBusReceiverClient again = closing(sessions(2, name).acceptNextSession());
        List<ServiceBusReceivedMessage> got = take(again, 2);
        assertEquals(List.of("b0", "b1"), bodies(got));
        got.forEach(m -> assertEquals(0, m.getDeliveryCount()));
    }

    @Test
    @DisplayName("state: kept with the session, without messages too, until it is cleared")
    void state() {
        String name = filled();
        ServiceBusReceiverClient a = closing(sessions(1, name).acceptSession("a"));
        assertNull(a.getSessionState());
        a.setSessionState("half done".getBytes());
        take(a, 3).forEach(a::complete);
        a.close();
        ServiceBusReceiverClient again = closing(sessions(3, name).acceptSession("a"));
        assertEquals("half done", new String(again.getSessionState()));
        again.setSessionState(null);
        assertNull(again.getSessionState());
    }

    @Test
    @DisplayName("a session's lock is renewed as a whole, and lost as a whole")
    void lock() {
        String name = filled("lockDuration", "5s");
        ServiceBusReceiverClient a = closing(sessions(2, name).acceptSession("a"));
        ServiceBusReceivedMessage message = takeOne(a);
        OffsetDateTime original = message.getLockedUntil();
        until(original.minusSeconds(2));
        OffsetDateTime renewed = a.renewSessionLock();
        assertTrue(renewed.isAfter(original), renewed + " after " + original);
        until(original.plusSeconds(1));
        a.complete(message);
        ServiceBusReceivedMessage late = takeOne(a);
        until(renewed.plus(Duration.ofMillis(500)));
        assertThrows(RuntimeException.class, () -> a.complete(late));
        refused(SESSION_LOCK_LOST, () -> a.setSessionState(new byte[] {1}));
        ServiceBusReceiverClient other = closing(sessions(1, name).acceptSession("a"));
        ServiceBusReceivedMessage back = takeOne(other);
        assertEquals("a1", back.getBody().toString());
        assertEquals(1, back.getDeliveryCount());
    }

    @Test
    @DisplayName("each settlement, and deferred messages of a session")
    void settle() {
        String name = filled();
        ServiceBusReceiverClient a = closing(sessions(3, name).acceptSession("a"));
        List<ServiceBusReceivedMessage> got = take(a, 3);
        a.abandon(got.get(0));
        a.defer(got.get(1));
        a.deadLetter(got.get(2));
        ServiceBusReceivedMessage again = takeOne(a);
        assertEquals("a0", again.getBody().toString());
        assertEquals(1, again.getDeliveryCount());
        assertEquals(List.of("a0", "a1"), bodies(a.peekMessages(10)));
        a.complete(a.receiveDeferredMessage(got.get(1).getSequenceNumber()));
        a.complete(again);
        countsBecome(name, "active", 2, "deferred", 0, "deadLetter", 1);
        assertEquals("a", takeOne(deletingDeadLetters(1, name)).getSessionId());
    }

    @Test
    @DisplayName("a message without a session is refused, and so is a receiver without one")
    void without() {
        String name = filled();
        assertThrows(RuntimeException.class, () -> sender(1, name).sendMessage(message("none")));
        assertThrows(RuntimeException.class, () -> bodies(receiver(1, name).receiveMessages(1, Duration.ofSeconds(5))));
        String plain = queue();
        assertThrows(RuntimeException.class, () -> sessions(1, plain).acceptSession("a"));
    }

    @Test
    @DisplayName("a session processor hands out each session in order, several at once")
    void processor() {
        String name = queue("requiresSession", true);
        Map<String, List<String>> seen = new ConcurrentHashMap<>();
        List<Throwable> errors = new CopyOnWriteArrayList<>();
        ServiceBusProcessorClient processor = closing(member(2).sessionProcessor()
            .queueName(name)
            .maxConcurrentSessions(3)
            .sessionIdleTimeout(Duration.ofMillis(500))
            .processMessage(context -> seen
                .computeIfAbsent(context.getMessage().getSessionId(), id -> new CopyOnWriteArrayList<>())
                .add(context.getMessage().getBody().toString()))
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient());
        processor.start();
        for (String session : List.of("p", "q", "r", "s", "t")) {
            sender(1, name).sendMessages(of(session, 10));
        }
        countsBecome(name, "active", 0);
        assertEquals(5, seen.size());
        seen.forEach((session, got) -> assertEquals(of(session, 10).stream().map(m -> m.getBody().toString()).toList(), got));
        assertEquals(List.of(), errors);
    }
}
