package peeklock;

import static com.azure.messaging.servicebus.models.ServiceBusMessageState.SCHEDULED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Time and duplicates: scheduled messages, time to live, duplicate detection. */
class TimeTest extends Scenario {
    @Test
    @DisplayName("schedule returns sequence numbers; messages come when they are due")
    void schedule() {
        String name = queue();
        OffsetDateTime due = in(Duration.ofSeconds(3)).truncatedTo(ChronoUnit.MILLIS);
        List<Long> numbers = new ArrayList<>();
        sender(2, name).scheduleMessages(numbered(3), due).forEach(numbers::add);
        assertEquals(3, new HashSet<>(numbers).size());
        ServiceBusReceiverClient receiver = deleting(3, name);
        List<ServiceBusReceivedMessage> peeked = receiver.peekMessages(10).stream().toList();
        assertEquals(List.of(SCHEDULED, SCHEDULED, SCHEDULED), peeked.stream().map(ServiceBusReceivedMessage::getState).toList());
        assertEquals(numbers, peeked.stream().map(ServiceBusReceivedMessage::getSequenceNumber).toList());
        assertEquals(due.toInstant(), peeked.get(0).getScheduledEnqueueTime().toInstant());
        nothing(receiver);
        List<ServiceBusReceivedMessage> got = take(receiver, 3);
        assertFalse(OffsetDateTime.now().isBefore(due), "not before it is due");
        assertTrue(OffsetDateTime.now().isBefore(due.plus(LATE).plusSeconds(1)), "nor long after"); // the client waits 1 s for more
        assertEquals(upTo(3), bodies(got));
        for (ServiceBusReceivedMessage message : got) {
            assertFalse(numbers.contains(message.getSequenceNumber()), "a new number at activation");
            assertFalse(message.getEnqueuedTime().isBefore(due));
            assertEquals(ServiceBusMessageState.SCHEDULED, message.getState());
        }
    }

    @Test
    @DisplayName("a message is scheduled by its property too")
    void scheduledByProperty() {
        String name = queue();
        OffsetDateTime due = in(Duration.ofSeconds(2));
        ServiceBusSenderClient sender = sender(1, name);
        sender.sendMessage(message("later").setScheduledEnqueueTime(due));
        sender.sendMessages(List.of(message("past").setScheduledEnqueueTime(in(Duration.ofMinutes(-1))), message("now")));
        ServiceBusReceiverClient receiver = deleting(1, name);
        assertEquals(List.of("past", "now"), bodies(take(receiver, 2)));
        assertEquals("later", takeOne(receiver).getBody().toString());
        assertFalse(OffsetDateTime.now().isBefore(due));
    }

    @Test
    @DisplayName("cancelled messages never come")
    void cancel() {
        String name = queue();
        ServiceBusSenderClient sender = sender(1, name);
        OffsetDateTime due = in(Duration.ofMillis(1_500));
        List<Long> numbers = new ArrayList<>();
        sender.scheduleMessages(numbered(3), due).forEach(numbers::add);
        sender(2, name).cancelScheduledMessages(List.of(numbers.get(0), numbers.get(2)));
        sender.cancelScheduledMessage(numbers.get(0)); // refused, but the client takes message-not-found for success
        until(due.plus(LATE));
        ServiceBusReceiverClient receiver = deleting(3, name);
        assertEquals("1", takeOne(receiver).getBody().toString());
        nothing(receiver);
    }

    @Test
    @DisplayName("E.1 a message expires at its enqueued time plus its time to live")
    void expiresAt() {
        String name = queue();
        sender(2, name).sendMessage(message("1").setTimeToLive(Duration.ofMinutes(1)));
        ServiceBusReceivedMessage message = takeOne(deleting(2, name));
        assertEquals(Duration.ofMinutes(1), message.getTimeToLive());
        assertEquals(message.getEnqueuedTime().plusMinutes(1), message.getExpiresAt());
    }

    @Test
    @DisplayName("E.2 an expired message is never delivered, and leaves by itself")
    void expired() {
        String name = queue();
        sender(1, name).sendMessages(List.of(
            message("short").setTimeToLive(Duration.ofSeconds(1)),
            message("long").setTimeToLive(Duration.ofMinutes(1))));
        countsBecome(name, "active", 2);
        countsBecome(name, "active", 1, "deadLetter", 0); // with nobody receiving
        assertEquals("long", takeOne(deleting(2, name)).getBody().toString());
    }

    @Test
    @DisplayName("E.3 a locked message may be completed after it has expired")
    void expiredWhileLocked() {
        String name = queue("deadLetteringOnMessageExpiration", true);
        sender(1, name).sendMessage(message("1").setTimeToLive(Duration.ofSeconds(3)));
        ServiceBusReceiverClient receiver = receiver(2, name);
        ServiceBusReceivedMessage message = takeOne(receiver);
        until(message.getExpiresAt().plus(Duration.ofMillis(500)));
        receiver.complete(message);
        countsBecome(name, "active", 0, "deadLetter", 0);
    }

    @Test
    @DisplayName("E.4 the queue's time to live is default and ceiling")
    void ceiling() {
        String name = queue("defaultMessageTimeToLive", "30s");
        sender(3, name).sendMessages(List.of(
            message("none"), message("more").setTimeToLive(Duration.ofHours(1)), message("less").setTimeToLive(Duration.ofSeconds(10))));
        List<ServiceBusReceivedMessage> got = take(deleting(1, name), 3);
        assertEquals(List.of(30L, 30L, 10L),
            got.stream().map(m -> Duration.between(m.getEnqueuedTime(), m.getExpiresAt()).toSeconds()).toList());
    }

    @Test
    @DisplayName("E.5 expired messages are dead-lettered with their reason, when the queue says so")
    void deadLettered() {
        String name = queue("deadLetteringOnMessageExpiration", true);
        sender(3, name).sendMessage(message("job").setMessageId("late").setTimeToLive(Duration.ofSeconds(1)));
        countsBecome(name, "active", 0, "deadLetter", 1);
        ServiceBusReceivedMessage dead = takeOne(deletingDeadLetters(3, name));
        assertEquals("TTLExpiredException", dead.getDeadLetterReason());
        assertEquals("late", dead.getMessageId());
        nothing(deletingDeadLetters(1, name)); // (E.6) once
    }

    @Test
    @DisplayName("T.15 a second message with the same id is accepted and dropped")
    void duplicates() {
        String name = queue("requiresDuplicateDetection", true);
        ServiceBusSenderClient sender = sender(1, name);
        sender.sendMessage(same("first"));
        sender(2, name).sendMessage(same("second"));
        sender.sendMessages(List.of(same("third"), message("other").setMessageId("other")));
        ServiceBusReceiverClient receiver = deleting(3, name);
        assertEquals(List.of("first", "other"), bodies(take(receiver, 2)));
        sender.sendMessage(same("after it was received"));
        nothing(receiver);
    }

    @Test
    @DisplayName("T.15 scheduled messages count as duplicates as well")
    void duplicateOfScheduled() {
        String name = queue("requiresDuplicateDetection", true);
        ServiceBusSenderClient sender = sender(1, name);
        sender.scheduleMessage(same("scheduled"), in(Duration.ofMillis(1_500)));
        sender.sendMessage(same("sent"));
        ServiceBusReceiverClient receiver = deleting(2, name);
        assertEquals("scheduled", takeOne(receiver).getBody().toString());
        nothing(receiver);
    }

    private static ServiceBusMessage same(String body) {
        return message(body).setMessageId("same");
    }
}
