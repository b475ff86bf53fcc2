package peeklock;

import static com.azure.core.amqp.exception.AmqpErrorCondition.NOT_FOUND;
import static com.azure.core.amqp.exception.AmqpErrorCondition.UNAUTHORIZED_ACCESS;
import static com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED;
import static com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND;
import static com.azure.messaging.servicebus.ServiceBusFailureReason.UNAUTHORIZED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.exception.AzureException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Refusals: keys, signatures, entities. Programs look at the reason, people read the text. */
class RefuseTest extends Scenario {
    /** A connection string of member 1 with other credentials. */
    private static ServiceBusClientBuilder withKey(String keyName, String key) {
        return builder("Endpoint=" + part(1, "Endpoint") + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + key
            + ";UseDevelopmentEmulator=true");
    }

    /** A connection string of member 1 that holds only a signature over path, and no key. */
    private static ServiceBusClientBuilder signed(String path, String key, Duration expires) throws Exception {
        String endpoint = part(1, "Endpoint").replaceAll("/*$", "/");
        return builder("Endpoint=" + endpoint + ";SharedAccessSignature=" + signature(endpoint + path, key, expires)
            + ";UseDevelopmentEmulator=true");
    }

    private ServiceBusSenderClient sender(ServiceBusClientBuilder of, String queue) {
        return closing(of.sender().queueName(queue).buildClient());
    }

    private ServiceBusReceiverClient receiver(ServiceBusClientBuilder of, String queue) {
        return closing(of.receiver().queueName(queue).buildClient());
    }

    @Test
    @DisplayName("T.1 a wrong key and an unknown key name are refused, when sending and when receiving")
    void wrongKey() {
        String name = queue();
        ServiceBusClientBuilder wrongKey = withKey(part(1, "SharedAccessKeyName"), "wrong");
        refused(UNAUTHORIZED, () -> sender(wrongKey, name).sendMessage(message("1")));
        refusedToReceive(UNAUTHORIZED_ACCESS, receiver(wrongKey, name));
        refused(UNAUTHORIZED, () -> receiver(wrongKey, name).peekMessage());
        ServiceBusClientBuilder nobody = withKey("Nobody", part(1, "SharedAccessKey"));
        refused(UNAUTHORIZED, () -> sender(nobody, name).sendMessage(message("1")));
        countsBecome(name, "active", 0);
    }

    @Test
    @DisplayName("T.1 an unknown entity is named by its own reason, and the connection lives on")
    void unknownEntity() {
        String unknown = "java-no-such-queue";
        ServiceBusException error = refused(MESSAGING_ENTITY_NOT_FOUND, () -> sender(1, unknown).sendMessage(message("1")));
        assertTrue(error.getMessage().contains(unknown), error.getMessage());
        assertTrue(error.getMessage().contains("TrackingId:"), "to be searched for in the logs of the members");
        assertFalse(error.isTransient());
        refused(MESSAGING_ENTITY_NOT_FOUND, () -> sender(1, unknown).createMessageBatch());
        refusedToReceive(NOT_FOUND, receiver(1, unknown));
        refused(MESSAGING_ENTITY_NOT_FOUND, () -> receiver(1, unknown).peekMessage());
        refusedToReceive(NOT_FOUND, deadLetters(1, unknown));
        String name = queue();
        sender(1, name).sendMessage(message("fine"));
        assertEquals("fine", takeOne(deleting(1, name)).getBody().toString());
    }

    @Test
    @DisplayName("T.11 nobody sends to a dead-letter queue")
    void sendToDeadLetters() {
        String name = queue();
        assertThrows(AzureException.class, () -> sender(1, name + "/$DeadLetterQueue").sendMessage(message("1")));
        sender(1, name).sendMessage(message("1"));
        countsBecome(name, "active", 1, "deadLetter", 0);
    }

    @Test
    @DisplayName("a queue whose sending is disabled says so")
    void disabled() {
        String name = queue("status", "SendDisabled");
        refused(MESSAGING_ENTITY_DISABLED, () -> sender(2, name).sendMessage(message("1")));
        nothing(receiver(2, name));
    }

    @Test
    @DisplayName("T.1 a client that holds only a signature does its work, where it is signed for")
    void signature() throws Exception {
        String own = queue();
        String other = queue();
        ServiceBusClientBuilder both = signed(own, part(1, "SharedAccessKey"), Duration.ofMinutes(10));
        sender(both, own).sendMessage(message("1"));
        refused(UNAUTHORIZED, () -> sender(both, other).sendMessage(message("1")));
        refusedToReceive(UNAUTHORIZED_ACCESS, receiver(both, other));
        assertEquals("1", takeOne(receiver(both, own)).getBody().toString());
        countsBecome(other, "active", 0);
    }

    @Test
    @DisplayName("T.1 a signature by a wrong key, or that has run out, is refused")
    void badSignature() throws Exception {
        String name = queue();
        ServiceBusClientBuilder forged = signed("", "wrong", Duration.ofMinutes(10));
        refused(UNAUTHORIZED, () -> sender(forged, name).sendMessage(message("1")));
        ServiceBusClientBuilder late = signed("", part(1, "SharedAccessKey"), Duration.ofMinutes(-1));
        refused(UNAUTHORIZED, () -> sender(late, name).sendMessage(message("1")));
    }
}
