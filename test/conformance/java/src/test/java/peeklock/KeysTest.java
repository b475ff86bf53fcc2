package peeklock;

import static com.azure.core.amqp.exception.AmqpErrorCondition.UNAUTHORIZED_ACCESS;
import static com.azure.messaging.servicebus.ServiceBusFailureReason.UNAUTHORIZED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.credential.AccessToken;
import com.azure.core.credential.AzureSasCredential;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import java.net.URI;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Mono;

/** Keys, tokens and TLS: the sample of the manual, rights, tokens that end, a member that dies. */
class KeysTest extends Scenario {
    private static final String SECURE_HOST = part(SECURE, "Endpoint").replaceAll("^sb://|/*$", "");

    @Test
    @DisplayName("the sample of the manual, with its connection string changed")
    void quickstart() {
        String connectionString = connectionString(1);
        String queueName = queue();

        ServiceBusSenderClient senderClient = new ServiceBusClientBuilder()
            .connectionString(connectionString)
            .sender()
            .queueName(queueName)
            .buildClient();
        senderClient.sendMessage(new ServiceBusMessage("Hello, World!"));
        ServiceBusMessageBatch messageBatch = senderClient.createMessageBatch();
        for (String body : List.of("First message", "Second message", "Third message")) {
            assertTrue(messageBatch.tryAddMessage(new ServiceBusMessage(body)));
        }
        senderClient.sendMessages(messageBatch);
        senderClient.close();

        Set<String> received = new ConcurrentSkipListSet<>();
        ServiceBusProcessorClient processorClient = new ServiceBusClientBuilder()
            .connectionString(connectionString)
            .processor()
            .queueName(queueName)
            .processMessage(context -> received.add(context.getMessage().getBody().toString()))
            .processError(context -> received.add(context.getException().toString()))
            .buildProcessorClient();
        processorClient.start();
        countsBecome(queueName, "active", 0, "locked", 0);
        processorClient.close();
        assertEquals(Set.of("Hello, World!", "First message", "Second message", "Third message"), received);
    }

    /** What makes clients of member 1 that sign with the key of another name. */
    private static ServiceBusClientBuilder as(String keyName) {
        return builder(connectionString(1).replace(part(1, "SharedAccessKeyName"), keyName));
    }

    private ServiceBusSenderClient sender(ServiceBusClientBuilder of, String queue) {
        return closing(of.sender().queueName(queue).buildClient());
    }

    private ServiceBusReceiverClient receiver(ServiceBusClientBuilder of, String queue) {
        return closing(of.receiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    @Test
    @DisplayName("who may send may not receive, and the other way round")
    void missingRight() {
        String name = queue();
        sender(as("Sender"), name).sendMessage(message("1"));
        refused(UNAUTHORIZED, () -> sender(as("Listener"), name).sendMessage(message("2")));
        refusedToReceive(UNAUTHORIZED_ACCESS, receiver(as("Sender"), name));
        refused(UNAUTHORIZED, () -> receiver(as("Sender"), name).peekMessage());
        assertEquals("1", takeOne(receiver(as("Listener"), name)).getBody().toString());
        countsBecome(name, "active", 1, "locked", 1);
    }

    /** What makes clients of a member that speaks TLS, on a port that no client knows by itself. */
    private static ServiceBusClientBuilder secure() {
        return builder(SECURE).customEndpointAddress("https://" + SECURE_HOST);
    }

    @Test
    @DisplayName("a link ends with its token, and another goes on with the next one")
    void tokenExpires() throws Exception {
        String name = secureQueue();
        ServiceBusClientBuilder before = signed(Duration.ofSeconds(10));
        sender(before, name).sendMessage(message("first"));
        ServiceBusReceiverClient receiver = receiver(before, name);
        receiver.complete(takeOne(receiver)); // what is not settled yet, this client may abandon when its link ends
        sleep(Duration.ofSeconds(11));
        // The first one may still meet the link that the broker has taken away, and says nothing of the reason.
        eventually(Duration.ofSeconds(20), () -> refused(UNAUTHORIZED, () -> sender(before, name).sendMessage(message("late"))));
        // A new builder: this one reads the signature of its credential once, whatever is updated there.
        ServiceBusClientBuilder after = signed(Duration.ofMinutes(10));
        ServiceBusReceiverClient next = receiver(after, name);
        sender(after, name).sendMessage(message("next"));
        assertEquals("next", takeOne(next).getBody().toString());
    }

    /** What makes clients that hold a signature and no key. */
    private static ServiceBusClientBuilder signed(Duration life) throws Exception {
        return new ServiceBusClientBuilder()
            .credential("localhost", new AzureSasCredential(signature("sb://localhost/", part(1, "SharedAccessKey"), life)))
            .customEndpointAddress("https://" + SECURE_HOST)
            .retryOptions(new AmqpRetryOptions().setMaxRetries(1).setDelay(Duration.ofMillis(250)).setTryTimeout(Duration.ofSeconds(20)));
    }

    /** What makes clients of member 1 with a role at the identity provider. */
    private static ServiceBusClientBuilder bearer(String role) {
        return new ServiceBusClientBuilder()
            .credential("localhost", request -> Mono.fromSupplier(() -> new AccessToken(token(role), OffsetDateTime.now().plusMinutes(10))))
            .customEndpointAddress("https://" + TRUSTED)
            .retryOptions(new AmqpRetryOptions().setMaxRetries(1).setDelay(Duration.ofMillis(250)).setTryTimeout(Duration.ofSeconds(20)));
    }

    @Test
    @DisplayName("a token of an identity provider lets in to what its roles allow")
    void jwt() {
        String name = queue();
        ServiceBusClientBuilder owner = bearer("Azure Service Bus Data Owner");
        sender(owner, name).sendMessage(message("1"));
        ServiceBusReceiverClient receiver = receiver(owner, name);
        receiver.complete(takeOne(receiver));
        ServiceBusClientBuilder sends = bearer("Azure Service Bus Data Sender");
        sender(sends, name).sendMessage(message("2"));
        refusedToReceive(UNAUTHORIZED_ACCESS, receiver(sends, name));
        refused(UNAUTHORIZED, () -> sender(bearer("Reader"), name).sendMessage(message("3")));
        countsBecome(name, "active", 1);
    }

    /** Sends a message over several frames, receives and completes it. */
    private void roundTrip(ServiceBusClientBuilder both) {
        String name = secureQueue();
        sender(both, name).sendMessage(message("x".repeat(100_000)));
        ServiceBusReceiverClient receiver = receiver(both, name);
        ServiceBusReceivedMessage message = takeOne(receiver);
        assertEquals(100_000, message.getBody().getLength());
        receiver.complete(message);
    }

    @Test
    @DisplayName("TLS by the development authority, in the trust store")
    void tls() {
        roundTrip(secure());
    }

    @Test
    @DisplayName("AMQP over WebSocket")
    void webSocket() {
        roundTrip(secure().transportType(AmqpTransportType.AMQP_WEB_SOCKETS));
    }

    @Test
    @DisplayName("administration over https")
    void administration() {
        ServiceBusAdministrationClient admin = new ServiceBusAdministrationClientBuilder()
            .connectionString(SECURE)
            .addPolicy(new AdminTest.Elsewhere(URI.create("https://" + SECURE_HOST))) // it drops the port
            .buildClient();
        String name = secureQueue() + "/made";
        admin.createQueue(name);
        assertEquals(0, admin.getQueueRuntimeProperties(name).getTotalMessageCount());
        admin.deleteQueue(name);
    }

    @Test
    @Timeout(180)
    @DisplayName("its member dies: sender and receiver go on at another, with what was locked")
    void reconnect() {
        String name = queue();
        ServiceBusClientBuilder both = builder(doomed())
            .retryOptions(new AmqpRetryOptions().setMaxRetries(10).setTryTimeout(Duration.ofSeconds(10)));
        ServiceBusSenderClient sender = sender(both, name);
        ServiceBusReceiverClient receiver = receiver(both, name);
        sender.sendMessage(message("before"));
        ServiceBusReceivedMessage held = takeOne(receiver);
        kill();
        sender.sendMessage(message("after"));
        ServiceBusReceivedMessage after = takeOne(receiver);
        assertEquals("after", after.getBody().toString());
        receiver.complete(after);
        receiver.complete(held);
        countsBecome(name, "active", 0, "locked", 0);
    }
}
