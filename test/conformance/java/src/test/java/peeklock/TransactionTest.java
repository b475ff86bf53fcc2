package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Transactions over two queues, with and without {@code enableCrossEntityTransactions}, which
 * puts all links of the client on one AMQP session and attaches to the coordinator first.
 */
class TransactionTest extends Scenario {
    private final String in = queue("lockDuration", "5s");
    private final String out = queue();
    private ServiceBusReceiverClient receiver;
    private ServiceBusTransactionContext transaction;

    /** Takes five messages, sends three and settles four of the five, all within a transaction. */
    private void work(boolean crossEntity) {
        ServiceBusClientBuilder builder = builder(connectionString(2));
        if (crossEntity) {
            builder.enableCrossEntityTransactions();
        }
        sender(1, in).sendMessages(numbered(5));
        receiver = closing(builder.receiver().queueName(in).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
        ServiceBusSenderClient sender = closing(builder.sender().queueName(out).buildClient());
        List<ServiceBusReceivedMessage> got = take(receiver, 5);
        transaction = receiver.createTransaction();
        sender.sendMessage(message("one"), transaction);
        sender.sendMessages(List.of(message("two"), message("three")), transaction);
        receiver.complete(got.get(0), new CompleteOptions().setTransactionContext(transaction));
        receiver.abandon(got.get(1),
            new AbandonOptions().setTransactionContext(transaction).setPropertiesToModify(Map.of("k", "v")));
        receiver.defer(got.get(2), new DeferOptions().setTransactionContext(transaction));
        receiver.deadLetter(got.get(3), new DeadLetterOptions().setTransactionContext(transaction).setDeadLetterReason("why"));
        countsBecome(out, "active", 0);
        countsBecome(in, "active", 5, "deferred", 0, "deadLetter", 0);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    @DisplayName("what was committed is done, all of it, and a transaction ends once")
    void commit(boolean crossEntity) {
        work(crossEntity);
        receiver.commitTransaction(transaction);
        countsBecome(out, "active", 3);
        countsBecome(in, "active", 2, "deferred", 1, "deadLetter", 1);
        assertEquals(List.of("one", "two", "three"), bodies(take(deleting(3, out), 3)));
        assertEquals("v", takeOne(deleting(1, in)).getApplicationProperties().get("k"));
        assertEquals("why", takeOne(deletingDeadLetters(3, in)).getDeadLetterReason());
        assertThrows(ServiceBusException.class, () -> receiver.commitTransaction(transaction));
    }

    /** The client takes its messages for settled, so they come again only when their locks end. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    @DisplayName("what was rolled back is as if it had never been")
    void rollback(boolean crossEntity) {
        work(crossEntity);
        receiver.rollbackTransaction(transaction);
        assertEquals(upTo(5), bodies(take(deleting(1, in), 5)));
        countsBecome(out, "active", 0);
        countsBecome(in, "active", 0, "deferred", 0, "deadLetter", 0);
    }

    /** A refused settlement or send may look like a success to this client, the commit must not. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    @DisplayName("a commit with a lost lock is refused, and does nothing of the rest")
    void lostLock(boolean crossEntity) {
        work(crossEntity);
        ServiceBusReceiverClient other = receiver(3, in);
        take(other, 5).forEach(other::complete); // after the first locks have ended
        ServiceBusException error = assertThrows(ServiceBusException.class, () -> receiver.commitTransaction(transaction));
        assertEquals(false, error.isTransient());
        countsBecome(out, "active", 0);
        countsBecome(in, "active", 0, "deferred", 0, "deadLetter", 0);
    }
}
