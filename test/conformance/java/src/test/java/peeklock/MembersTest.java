package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import java.time.OffsetDateTime;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Any member serves any client: what one member took, the others give, settle and count. */
class MembersTest extends Scenario {
    @Test
    @DisplayName("T.17 sent at each member, received and settled at each")
    void everyPairing() {
        String name = queue();
        for (int member = 1; member <= 3; member++) {
            sender(member, name).sendMessages(numbered(6));
        }
        countsBecome(name, "active", 18);
        for (int member = 1; member <= 3; member++) {
            ServiceBusReceiverClient receiver = receiver(member, name);
            List<ServiceBusReceivedMessage> got = take(receiver, 6);
            assertEquals(upTo(6), bodies(got), "in the order of the sends");
            got.forEach(receiver::complete);
        }
        for (int member = 1; member <= 3; member++) {
            assertEquals(0, counts(name, member).get("active"), "as member " + member + " sees it");
        }
    }

    @Test
    @DisplayName("T.9 a message locked at one member is settled at another, by its token")
    void settledElsewhere() {
        String name = filled(2);
        List<ServiceBusReceivedMessage> got = take(receiver(2, name), 2);
        ServiceBusReceiverClient elsewhere = receiver(3, name);
        elsewhere.complete(got.get(0));
        OffsetDateTime before = got.get(1).getLockedUntil();
        assertFalse(elsewhere.renewMessageLock(got.get(1)).isBefore(before));
        elsewhere.deadLetter(got.get(1), new DeadLetterOptions().setDeadLetterReason("elsewhere"));
        countsBecome(name, "active", 0, "locked", 0, "deadLetter", 1);
    }

    @Test
    @DisplayName("T.17 a queue is known everywhere as soon as it is made; names have parts and no case")
    void names() {
        String name = queue();
        String nested = name + "/orders/EU.1_x";
        create(nested);
        sender(2, nested.toUpperCase(java.util.Locale.ROOT)).sendMessage(message("nested"));
        sender(3, name.toUpperCase(java.util.Locale.ROOT)).sendMessage(message("plain"));
        assertEquals("nested", takeOne(deleting(3, nested)).getBody().toString());
        assertEquals("plain", takeOne(deleting(2, name)).getBody().toString());
    }
}
