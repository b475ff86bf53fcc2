package peeklock;

import static com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGE_LOCK_LOST;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Locks: their end, what is too late, renewal. */
class LockTest extends Scenario {
    @Test
    @DisplayName("T.13 a late completion is refused, on the link, which lives on")
    void lateCompletion() {
        String name = filled(1, "lockDuration", "5s");
        ServiceBusReceiverClient receiver = receiver(2, name);
        ServiceBusReceivedMessage message = takeOne(receiver);
        afterLock(message);
        ServiceBusException error = refused(MESSAGE_LOCK_LOST, () -> receiver.complete(message));
        assertFalse(error.isTransient());
        ServiceBusReceivedMessage again = takeOne(receiver);
        assertEquals(1, again.getDeliveryCount());
        assertEquals(message.getMessageId(), again.getMessageId());
        receiver.complete(again);
        countsBecome(name, "active", 0);
    }

    /**
     * A late dead-lettering is not looked at here: the client takes any outcome "rejected" as
     * the success of its own dead-lettering, also one that carries an error.
     */
    @Test
    @DisplayName("T.13 late abandon, defer and renew are refused")
    void late() {
        String name = filled(4, "lockDuration", "5s");
        ServiceBusReceiverClient receiver = receiver(2, name);
        List<ServiceBusReceivedMessage> got = take(receiver, 4);
        afterLock(got.get(3));
        refused(MESSAGE_LOCK_LOST, () -> receiver.abandon(got.get(0)));
        refused(MESSAGE_LOCK_LOST, () -> receiver.defer(got.get(1)));
        refused(MESSAGE_LOCK_LOST, () -> receiver.renewMessageLock(got.get(2)));
        receiver.deadLetter(got.get(3), new DeadLetterOptions().setDeadLetterReason("late"));
        countsBecome(name, "active", 4, "locked", 0, "deferred", 0, "deadLetter", 0);
    }

    @Test
    @DisplayName("C.3 the lock of a receiver that is gone runs out and another one gets the message")
    void gone() {
        String name = filled(1, "lockDuration", "5s");
        ServiceBusReceiverClient gone = receiver(1, name);
        ServiceBusReceivedMessage lost = takeOne(gone);
        gone.close();
        ServiceBusReceiverClient other = receiver(3, name);
        ServiceBusReceivedMessage message = takeOne(other);
        assertEquals(1, message.getDeliveryCount());
        assertFalse(OffsetDateTime.now().isBefore(lost.getLockedUntil().minus(Duration.ofMillis(50))));
        other.complete(message);
        countsBecome(name, "active", 0);
    }

    @Test
    @DisplayName("T.6 renewing extends the lock by a full lock duration from now")
    void renew() {
        String name = filled(1, "lockDuration", "5s");
        ServiceBusReceiverClient receiver = receiver(2, name);
        ServiceBusReceivedMessage message = takeOne(receiver);
        OffsetDateTime original = message.getLockedUntil();
        OffsetDateTime before = original;
        for (int i = 0; i < 2; i++) {
            until(before.minusSeconds(2));
            OffsetDateTime renewed = receiver.renewMessageLock(message);
            assertTrue(renewed.isAfter(before), renewed + " after " + before);
            long left = Duration.between(OffsetDateTime.now(), renewed).toMillis();
            assertTrue(Math.abs(left - 5_000) < 1_500, left + " ms from now");
            before = renewed;
        }
        until(original.plusSeconds(1));
        nothing(receiver(3, name));
        receiver.complete(message);
        countsBecome(name, "active", 0);
    }

    @Test
    @DisplayName("T.6 the client renews by itself")
    void renewedByItself() {
        String name = filled(1, "lockDuration", "5s", "maxDeliveryCount", 1);
        ServiceBusReceiverClient receiver = receiver(1, name);
        ServiceBusReceivedMessage message = takeOne(receiver);
        List<Throwable> errors = new CopyOnWriteArrayList<>();
        OffsetDateTime original = message.getLockedUntil();
        receiver.renewMessageLock(message, Duration.ofSeconds(20), errors::add);
        until(original.plusSeconds(1));
        receiver.complete(message);
        countsBecome(name, "active", 0, "deadLetter", 0);
        assertEquals(List.of(), errors);
    }
}
