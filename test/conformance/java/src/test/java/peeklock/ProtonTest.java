package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Date;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.qpid.protonj2.client.AdvancedMessage;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryMode;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.DistributionMode;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.Session;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientConnectionSecurityException;
import org.apache.qpid.protonj2.client.exceptions.ClientException;
import org.apache.qpid.protonj2.types.messaging.Data;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * protonj2: a client of AMQP 1.0 that leaves addresses, annotations and outcomes to the program. Name and key of a
 * rule are user and password, and an address is the path of an entity.
 */
class ProtonTest extends Scenario {
    private static final int BATCH = 0x80013700; // the message format of a batch

    private static ConnectionOptions options() {
        ConnectionOptions options = new ConnectionOptions();
        options.user(part(1, "SharedAccessKeyName"));
        options.password(part(1, "SharedAccessKey"));
        return options;
    }

    /** A connection to host and port, or to the host of a connection string. */
    private Connection connection(String at, ConnectionOptions options) throws ClientException {
        String[] hostAndPort = at.replaceAll("^.*sb://|[/;].*$", "").split(":");
        Connection connection = closing(Client.create()).connect(hostAndPort[0], Integer.parseInt(hostAndPort[1]), options);
        await(connection.openFuture());
        return connection;
    }

    private Connection connection() throws ClientException {
        return connection(connectionString(1), options());
    }

    private static <T> T await(Future<T> future) throws ClientException {
        try {
            return future.get(20, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            if (e.getCause() instanceof ClientException cause) {
                throw cause;
            }
            throw new IllegalStateException(e);
        } catch (InterruptedException | TimeoutException e) {
            throw new IllegalStateException(e);
        }
    }

    private static DeliveryState send(Sender sender, Message<?> message) throws ClientException {
        Tracker tracker = sender.send(message);
        return await(tracker.settlementFuture()).remoteState();
    }

    private static void send(Sender sender, String... bodies) throws ClientException {
        for (String body : bodies) {
            assertTrue(send(sender, Message.create(body)).isAccepted());
        }
    }

    /** A receiver that gets a message when it asks for one. */
    private static Receiver receiver(Session session, String address, ReceiverOptions options) throws ClientException {
        Receiver receiver = session.openReceiver(address, options.creditWindow(0).autoAccept(false));
        await(receiver.openFuture());
        return receiver;
    }

    private static Receiver receiver(Connection connection, String address) throws ClientException {
        return receiver(connection.defaultSession(), address, new ReceiverOptions());
    }

    private static Delivery next(Receiver receiver) throws ClientException {
        Delivery delivery = receiver.addCredit(1).receive(20, TimeUnit.SECONDS);
        assertNotNull(delivery, "a message in time");
        return delivery;
    }

    private static Object body(Delivery delivery) throws ClientException {
        return delivery.message().body();
    }

    @Test
    @DisplayName("the program of its manual")
    void quickstart() throws ClientException {
        String name = queue();
        try (Client client = Client.create()) {
            String[] hostAndPort = part(1, "Endpoint").replaceAll("^sb://|/*$", "").split(":");
            Connection connection = client.connect(hostAndPort[0], Integer.parseInt(hostAndPort[1]), options());
            Receiver receiver = connection.openReceiver(name);
            Sender sender = connection.openSender(name);
            sender.send(Message.create("Hello World"));
            assertEquals("Hello World", receiver.receive().message().body());
            connection.close();
        }
        countsBecome(name, "active", 0, "locked", 0);
    }

    @Test
    @DisplayName("properties keep their types")
    void send() throws ClientException {
        String name = queue();
        Connection connection = connection();
        Message<String> sent = Message.create("text").messageId("id").correlationId("c").subject("s").contentType("text/plain")
            .property("number", 1L << 40).property("flag", true).property("fraction", 0.25).annotation("x-own", 7);
        assertTrue(send(connection.openSender(name), sent).isAccepted());
        Message<String> got = next(receiver(connection, name)).message();
        assertEquals(List.of("text", "id", "c", "s", "text/plain"),
            List.of(got.body(), got.messageId(), got.correlationId(), got.subject(), got.contentType()));
        assertEquals(List.of(1L << 40, true, 0.25, 7),
            List.of(got.property("number"), got.property("flag"), got.property("fraction"), got.annotation("x-own")));
    }

    @Test
    @DisplayName("many messages by the format of a batch")
    void batch() throws ClientException {
        String name = queue();
        Connection connection = connection();
        AdvancedMessage<Object> batch = AdvancedMessage.create();
        batch.messageFormat(BATCH);
        for (String body : new String[] {"one", "two", "three"}) {
            // A message is one section: an AMQP value that is a short string.
            byte[] encoded = new byte[5 + body.length()];
            System.arraycopy(new byte[] {0x00, 0x53, 0x77, (byte) 0xa1, (byte) body.length()}, 0, encoded, 0, 5);
            System.arraycopy(body.getBytes(StandardCharsets.UTF_8), 0, encoded, 5, body.length());
            batch.addBodySection(new Data(encoded));
        }
        assertTrue(send(connection.openSender(name), batch).isAccepted());
        Receiver receiver = receiver(connection, name);
        for (String body : new String[] {"one", "two", "three"}) {
            assertEquals(body, body(next(receiver)));
        }
    }

    @Test
    @DisplayName("as large as the queue takes, and no larger")
    void large() throws ClientException {
        String name = queue();
        Connection connection = connection(connectionString(1), options().maxFrameSize(16_384));
        Sender sender = connection.openSender(name);
        assertTrue(send(sender, Message.create(new byte[255 * 1024])).isAccepted());
        assertEquals(255 * 1024, ((byte[]) body(next(receiver(connection, name)))).length);
        assertFalse(send(sender, Message.create(new byte[300 * 1024])).isAccepted());
        send(sender, "small");
    }

    @Test
    @DisplayName("what is settled as it is sent is gone")
    void receiveAndDelete() throws ClientException {
        String name = queue();
        Connection connection = connection();
        send(connection.openSender(name), "x");
        Receiver receiver = receiver(connection.defaultSession(), name, new ReceiverOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE));
        assertEquals("x", body(next(receiver)));
        countsBecome(name, "active", 0);
    }

    @Test
    @DisplayName("each outcome of AMQP")
    void settle() throws ClientException {
        String name = queue();
        Connection connection = connection();
        send(connection.openSender(name), "accept", "release", "reject", "aside");
        Receiver receiver = receiver(connection, name);
        next(receiver).accept();
        Delivery released = next(receiver);
        next(receiver).reject("why", "because");
        next(receiver).modified(false, true);
        countsBecome(name, "active", 1, "locked", 1, "deferred", 1, "deadLetter", 1);
        released.release();
        Delivery again = next(receiver);
        assertEquals("release", body(again));
        again.modified(true, false);
        assertEquals(1, next(receiver).message().deliveryCount());
        assertEquals("reject", body(next(receiver(connection, name + "/$DeadLetterQueue"))));
    }

    @Test
    @DisplayName("a browser shows each message and removes none")
    void browse() throws ClientException {
        String name = queue();
        Connection connection = connection();
        send(connection.openSender(name), "1", "2");
        ReceiverOptions browses = new ReceiverOptions();
        browses.sourceOptions().distributionMode(DistributionMode.COPY);
        Receiver browser = receiver(connection.defaultSession(), name, browses);
        assertEquals("1", body(next(browser)));
        assertEquals("2", body(next(browser)));
        countsBecome(name, "active", 2, "locked", 0);
    }

    @Test
    @DisplayName("a message is scheduled by an annotation")
    void schedule() throws ClientException {
        String name = queue();
        Connection connection = connection();
        Instant due = Instant.now().plusSeconds(2);
        assertTrue(send(connection.openSender(name), Message.create("later").annotation("x-opt-scheduled-enqueue-time", Date.from(due))).isAccepted());
        assertEquals("later", body(next(receiver(connection, name))));
        assertFalse(Instant.now().isBefore(due.minus(Duration.ofMillis(1))));
    }

    @Test
    @DisplayName("the second message with an id is dropped")
    void duplicates() throws ClientException {
        String name = queue("requiresDuplicateDetection", true);
        Connection connection = connection();
        Sender sender = connection.openSender(name);
        for (String body : new String[] {"first", "second"}) {
            assertTrue(send(sender, Message.create(body).messageId("same")).isAccepted());
        }
        countsBecome(name, "active", 1);
        assertEquals("first", body(next(receiver(connection, name))));
    }

    @Test
    @DisplayName("what is published comes to each subscription")
    void topic() throws ClientException {
        String name = topic("a", "b");
        Connection connection = connection();
        send(connection.openSender(name), "to both");
        for (String subscription : new String[] {"a", "b"}) {
            assertEquals("to both", body(next(receiver(connection, name + "/Subscriptions/" + subscription))));
        }
    }

    @Test
    @DisplayName("a transaction over two queues: committed it is done, rolled back it is not")
    void transaction() throws ClientException {
        String in = queue("lockDuration", "5s");
        String out = queue();
        Connection connection = connection();
        send(connection.openSender(in), "1");
        Session session = connection.openSession();
        Receiver receiver = receiver(session, in, new ReceiverOptions());
        Sender sender = session.openSender(out);
        session.beginTransaction();
        Delivery taken = next(receiver);
        taken.accept();
        sender.send(Message.create("undone"));
        session.rollbackTransaction();
        countsBecome(in, "active", 1);
        countsBecome(out, "active", 0);
        session.beginTransaction();
        Delivery again = next(receiver); // the lock of the first delivery has to end
        again.accept();
        sender.send(Message.create("done"));
        session.commitTransaction();
        countsBecome(in, "active", 0, "locked", 0);
        assertEquals("done", body(next(receiver(connection, out))));
    }

    @Test
    @DisplayName("a wrong key is refused by SASL")
    void wrongKey() {
        ConnectionOptions wrong = options();
        wrong.password("wrong");
        assertThrows(ClientConnectionSecurityException.class, () -> connection(connectionString(1), wrong));
    }

    private void roundTrip(ConnectionOptions options) throws ClientException {
        String name = secureQueue();
        options.sslEnabled(true).sslOptions().storeType("PKCS12");
        Connection connection = connection(SECURE, options);
        send(connection.openSender(name), "x");
        Delivery delivery = next(receiver(connection, name));
        assertEquals("x", body(delivery));
        delivery.accept();
    }

    @Test
    @DisplayName("TLS by the development authority, in the trust store")
    void tls() throws ClientException {
        roundTrip(options());
    }

    @Test
    @DisplayName("AMQP over WebSocket")
    void webSocket() throws ClientException {
        ConnectionOptions options = options();
        options.transportOptions().useWebSockets(true).webSocketPath("/$servicebus/websocket");
        roundTrip(options);
    }

    @Test
    @DisplayName("a client certificate in the name of a rule")
    void external() throws Exception {
        String name = queue();
        ConnectionOptions options = new ConnectionOptions().sslEnabled(true);
        options.sslOptions().storeType("PKCS12").keyStoreLocation(QpidTest.keyStore().toString()).keyStorePassword("changeit");
        options.saslOptions().addAllowedMechanism("EXTERNAL");
        Connection connection = connection(TRUSTED, options);
        send(connection.openSender(name), "vouched for");
        assertEquals("vouched for", body(next(receiver(connection, name))));
    }

    @Test
    @Timeout(180)
    @DisplayName("its member dies: sender and receiver go on at another")
    void reconnect() throws ClientException {
        String name = queue();
        ConnectionOptions options = options().reconnectEnabled(true);
        options.reconnectOptions().reconnectDelay(100).maxReconnectDelay(1_000);
        CompletableFuture<Boolean> again = new CompletableFuture<>();
        options.reconnectedHandler((c, event) -> again.complete(true));
        Connection connection = connection(doomed(), options);
        Sender sender = connection.openSender(name);
        Receiver receiver = receiver(connection, name);
        send(sender, "before");
        assertEquals("before", body(next(receiver)));
        kill();
        await(again); // what is sent while the connection breaks fails
        send(sender, "after");
        Delivery after = next(receiver);
        assertEquals("after", body(after));
        after.accept();
        countsBecome(name, "active", 1, "locked", 1); // what was locked before: this client settles it no more
    }
}
