package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Enumeration;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Qpid JMS: a client of AMQP 1.0 that knows nothing of the service. Name and key of a rule are
 * user and password, a queue is a queue, and what a topic gives to a subscription is one too.
 */
class QpidTest extends Scenario {
    /** One message at a time: what is fetched ahead is locked. */
    static final String NO_PREFETCH = "?jms.prefetchPolicy.all=0";

    private static final int ONE_BY_ONE = 101; // acknowledgement, of a kind that this client adds
    private static final int ACCEPTED = 1;
    private static final int REJECTED = 2;
    private static final int RELEASED = 3;
    private static final int MODIFIED_FAILED_UNDELIVERABLE = 5;

    static String host(String connectionString) {
        return part(connectionString, "Endpoint").replaceAll("^sb://|/*$", "");
    }

    static JmsConnectionFactory factory(String url) {
        return new JmsConnectionFactory(part(1, "SharedAccessKeyName"), part(1, "SharedAccessKey"), url);
    }

    private Connection connection(String url) throws JMSException {
        Connection connection = closing(factory(url).createConnection());
        connection.start();
        return connection;
    }

    private Session session(int mode) throws JMSException {
        return connection("amqp://" + host(connectionString(1)) + NO_PREFETCH).createSession(mode);
    }

    /** Sends texts to a queue, each confirmed. */
    private static void send(Session session, String queue, String... bodies) throws JMSException {
        try (MessageProducer producer = session.createProducer(session.createQueue(queue))) {
            for (String body : bodies) {
                producer.send(session.createTextMessage(body));
            }
        }
    }

    static TextMessage next(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(20_000);
        assertNotNull(message, "a message in time");
        return (TextMessage) message;
    }

    /** Settles a message with one of the outcomes of AMQP. */
    private static void settle(Message message, int outcome) throws JMSException {
        message.setIntProperty("JMS_AMQP_ACK_TYPE", outcome);
        message.acknowledge();
    }

    @Test
    @DisplayName("the program of its manual")
    void quickstart() throws JMSException {
        String name = queue();
        JmsConnectionFactory factory = factory("amqp://" + host(connectionString(1)));
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(name));
            MessageConsumer consumer = session.createConsumer(session.createQueue(name));
            producer.send(session.createTextMessage("Hello world!"));
            assertEquals("Hello world!", next(consumer).getText());
        }
        countsBecome(name, "active", 0, "locked", 0);
    }

    @Test
    @DisplayName("properties keep their types, and text stays text")
    void send() throws JMSException {
        String name = queue();
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        TextMessage sent = session.createTextMessage("text");
        sent.setStringProperty("text", "t");
        sent.setLongProperty("number", 1L << 40);
        sent.setBooleanProperty("flag", true);
        sent.setDoubleProperty("fraction", 0.25);
        sent.setJMSCorrelationID("correlation");
        sent.setJMSType("subject");
        session.createProducer(session.createQueue(name)).send(sent);
        TextMessage got = next(session.createConsumer(session.createQueue(name)));
        assertEquals("text", got.getText());
        assertEquals("t", got.getObjectProperty("text"));
        assertEquals(1L << 40, got.getObjectProperty("number"));
        assertEquals(true, got.getObjectProperty("flag"));
        assertEquals(0.25, got.getObjectProperty("fraction"));
        assertEquals("correlation", got.getJMSCorrelationID());
        assertEquals("subject", got.getJMSType());
        assertEquals(sent.getJMSMessageID(), got.getJMSMessageID());
    }

    @Test
    @DisplayName("as large as the queue takes, and no larger")
    void large() throws JMSException {
        String name = queue();
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(name));
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(new byte[255 * 1024]);
        producer.send(message);
        MessageConsumer consumer = session.createConsumer(session.createQueue(name));
        assertEquals(255 * 1024, ((BytesMessage) consumer.receive(20_000)).getBodyLength());
        BytesMessage larger = session.createBytesMessage();
        larger.writeBytes(new byte[300 * 1024]);
        assertThrows(JMSException.class, () -> producer.send(larger));
        send(session, name, "small");
        assertEquals("small", next(consumer).getText());
    }

    @Test
    @DisplayName("what is settled as it is sent is gone")
    void receiveAndDelete() throws JMSException {
        String name = queue();
        send(session(Session.AUTO_ACKNOWLEDGE), name, "x");
        Session session = connection("amqp://" + host(connectionString(2)) + NO_PREFETCH + "&jms.presettlePolicy.presettleConsumers=true")
            .createSession(Session.CLIENT_ACKNOWLEDGE);
        assertEquals("x", next(session.createConsumer(session.createQueue(name))).getText());
        countsBecome(name, "active", 0);
    }

    @Test
    @DisplayName("each outcome of AMQP")
    void settle() throws JMSException {
        String name = queue();
        Session session = session(ONE_BY_ONE);
        send(session, name, "accept", "release", "reject", "aside");
        MessageConsumer consumer = session.createConsumer(session.createQueue(name));
        settle(next(consumer), ACCEPTED);
        TextMessage released = next(consumer);
        settle(next(consumer), REJECTED);
        settle(next(consumer), MODIFIED_FAILED_UNDELIVERABLE);
        countsBecome(name, "active", 1, "locked", 1, "deferred", 1, "deadLetter", 1);
        settle(released, RELEASED);
        assertEquals("release", next(consumer).getText());
        MessageConsumer dead = session.createConsumer(session.createQueue(name + "/$DeadLetterQueue"));
        assertEquals("reject", next(dead).getText());
    }

    @Test
    @DisplayName("a session that is recovered gives its messages again, with an attempt counted")
    void recover() throws JMSException {
        String name = queue();
        Session session = session(Session.CLIENT_ACKNOWLEDGE);
        send(session, name, "x");
        MessageConsumer consumer = session.createConsumer(session.createQueue(name));
        assertEquals(1, next(consumer).getIntProperty("JMSXDeliveryCount"));
        consumer.close();
        session.recover();
        countsBecome(name, "active", 1, "locked", 0);
        TextMessage again = next(session.createConsumer(session.createQueue(name)));
        assertEquals("x", again.getText());
    }

    @Test
    @DisplayName("what is published comes to each subscription")
    void topic() throws JMSException {
        String name = topic("a", "b");
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        session.createProducer(session.createTopic(name)).send(session.createTextMessage("to both"));
        for (String subscription : new String[] {"a", "b"}) {
            MessageConsumer consumer = session.createConsumer(session.createQueue(name + "/Subscriptions/" + subscription));
            assertEquals("to both", next(consumer).getText());
        }
    }

    @Test
    @DisplayName("a transaction over two queues: committed it is done, rolled back it is not")
    void transaction() throws JMSException {
        String in = queue("lockDuration", "5s"); // what is rolled back stays locked, and comes again when its lock has ended
        String out = queue();
        send(session(Session.AUTO_ACKNOWLEDGE), in, "1");
        Session session = session(Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(session.createQueue(in));
        MessageProducer producer = session.createProducer(session.createQueue(out));
        assertEquals("1", next(consumer).getText());
        producer.send(session.createTextMessage("undone"));
        countsBecome(out, "active", 0);
        session.rollback();
        assertEquals("1", next(consumer).getText());
        producer.send(session.createTextMessage("done"));
        session.commit();
        countsBecome(in, "active", 0, "locked", 0);
        countsBecome(out, "active", 1);
        assertEquals("done", next(session.createConsumer(session.createQueue(out))).getText());
        session.commit();
        countsBecome(out, "active", 0);
    }

    @Test
    @DisplayName("a browser shows each message and removes none")
    void browse() throws JMSException {
        String name = queue();
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        send(session, name, "1", "2", "3");
        List<String> texts = new ArrayList<>();
        for (Enumeration<?> all = session.createBrowser(session.createQueue(name)).getEnumeration(); all.hasMoreElements();) {
            texts.add(((TextMessage) all.nextElement()).getText());
        }
        assertEquals(List.of("1", "2", "3"), texts);
        countsBecome(name, "active", 3, "locked", 0);
    }

    @Test
    @DisplayName("a selector that the broker cannot apply is refused, and not ignored")
    void selector() throws JMSException {
        String name = queue();
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        assertThrows(JMSException.class, () -> session.createConsumer(session.createQueue(name), "JMSPriority > 4"));
        assertThrows(InvalidSelectorException.class, () -> session.createConsumer(session.createQueue(name), "colour ="));
    }

    @Test
    @DisplayName("a browser with a selector shows what it selects")
    void browseSelected() throws JMSException {
        String name = queue();
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        try (MessageProducer producer = session.createProducer(session.createQueue(name))) {
            for (int i = 0; i < 20; i++) {
                TextMessage message = session.createTextMessage("" + i);
                message.setIntProperty("number", i);
                message.setJMSType(i % 2 == 0 ? "even" : "odd");
                producer.send(message);
            }
        }
        List<String> texts = new ArrayList<>();
        String selector = "JMSType = 'odd' AND number BETWEEN 3 AND 0x0A AND missing IS NULL";
        for (Enumeration<?> all = session.createBrowser(session.createQueue(name), selector).getEnumeration(); all.hasMoreElements();) {
            texts.add(((TextMessage) all.nextElement()).getText());
        }
        assertEquals(List.of("3", "5", "7", "9"), texts);
        countsBecome(name, "active", 20, "locked", 0);
    }

    @Test
    @DisplayName("each consumer of a topic gets what is published while it is there")
    void topicConsumers() throws JMSException {
        String name = topic("archive");
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createTopic(name));
        producer.send(session.createTextMessage("before"));
        Session other = connection("amqp://" + host(connectionString(2)) + NO_PREFETCH).createSession(Session.AUTO_ACKNOWLEDGE);
        MessageConsumer one = session.createConsumer(session.createTopic(name));
        MessageConsumer two = other.createConsumer(other.createTopic(name));
        producer.send(session.createTextMessage("1"));
        assertEquals("1", next(one).getText());
        assertEquals("1", next(two).getText());
        one.close();
        producer.send(session.createTextMessage("2"));
        assertEquals("2", next(two).getText());
        assertNull(two.receiveNoWait());
        assertThrows(JMSException.class, () -> session.createConsumer(session.createTopic(name), null, true), "noLocal");
        assertThrows(InvalidDestinationException.class, () -> session.createConsumer(session.createTopic(name + "-unknown")));
    }

    @Test
    @DisplayName("a temporary topic ends with its connection")
    void temporaryTopic() throws JMSException {
        Session other = session(Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer;
        try (Connection connection = factory("amqp://" + host(connectionString(2)) + NO_PREFETCH).createConnection()) {
            connection.start();
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            TemporaryTopic topic = session.createTemporaryTopic();
            MessageConsumer one = session.createConsumer(topic);
            MessageConsumer two = session.createConsumer(topic);
            producer = other.createProducer(other.createTopic(topic.getTopicName()));
            producer.send(other.createTextMessage("to both"));
            assertEquals("to both", next(one).getText());
            assertEquals("to both", next(two).getText());
        }
        assertThrows(JMSException.class, () -> {
            for (int i = 0; i < 100; i++) { // it is deleted a moment after its link has ended
                producer.send(other.createTextMessage("late"));
                Thread.sleep(100);
            }
        });
    }

    @Test
    @DisplayName("consumers share a durable subscription by its name")
    void sharedSubscription() throws JMSException {
        String name = topic("shared");
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        MessageConsumer one = session.createSharedDurableConsumer(session.createTopic(name), "shared");
        try (MessageProducer producer = session.createProducer(session.createTopic(name))) {
            producer.send(session.createTextMessage("1"));
            assertEquals("1", next(one).getText());
            MessageConsumer two = session.createSharedDurableConsumer(session.createTopic(name), "shared");
            one.close();
            producer.send(session.createTextMessage("2"));
            assertEquals("2", next(two).getText());
            two.close();
            session.createSharedDurableConsumer(session.createTopic(name), "new").close();
            producer.send(session.createTextMessage("3"));
            MessageConsumer missing = session.createSharedDurableConsumer(session.createTopic(name), "new");
            assertEquals("3", next(missing).getText());
            missing.close();
        }
        session.unsubscribe("new");
        assertThrows(InvalidDestinationException.class, () -> session.unsubscribe("shared"), "an administrator's");
    }

    /** A session of a client id. */
    private Session sessionAs(String client, int member) throws JMSException {
        Connection connection = closing(factory("amqp://" + host(connectionString(member)) + NO_PREFETCH).createConnection());
        connection.setClientID(client);
        connection.start();
        return connection.createSession(Session.AUTO_ACKNOWLEDGE);
    }

    @Test
    @DisplayName("a durable subscription stays while its client is away, until it unsubscribes")
    void durableSubscription() throws JMSException {
        String name = topic("archive");
        Session session = sessionAs("client " + name, 1);
        Topic topic = session.createTopic(name);
        MessageConsumer consumer = session.createDurableConsumer(topic, "mine");
        MessageProducer producer = session.createProducer(topic);
        producer.send(session.createTextMessage("1"));
        assertEquals("1", next(consumer).getText());
        Session second = sessionAs("client " + name, 1);
        assertThrows(JMSException.class, () -> second.createDurableConsumer(second.createTopic(name), "mine"), "a second consumer");
        assertThrows(JMSException.class, () -> second.unsubscribe("mine"), "it has a consumer");
        Session other = sessionAs("another " + name, 1);
        assertThrows(InvalidDestinationException.class, () -> other.unsubscribe("mine"), "it belongs to another client");
        consumer.close();
        producer.send(session.createTextMessage("2"));
        Session elsewhere = sessionAs("client " + name, 2);
        MessageConsumer again = elsewhere.createDurableConsumer(elsewhere.createTopic(name), "mine");
        assertEquals("2", next(again).getText());
        assertNull(again.receiveNoWait());
        again.close();
        elsewhere.unsubscribe("mine");
        assertThrows(InvalidDestinationException.class, () -> elsewhere.unsubscribe("mine"), "it is deleted");
        producer.send(session.createTextMessage("3"));
        assertNull(session.createDurableConsumer(topic, "mine").receiveNoWait(), "a new one begins empty");
    }

    @Test
    @DisplayName("consumers at two members share a subscription that is not durable")
    void sharedVolatile() throws JMSException {
        String name = topic("archive");
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        Session other = connection("amqp://" + host(connectionString(2)) + NO_PREFETCH).createSession(Session.AUTO_ACKNOWLEDGE);
        MessageConsumer one = session.createSharedConsumer(session.createTopic(name), "news");
        MessageConsumer two = other.createSharedConsumer(other.createTopic(name), "news");
        MessageProducer producer = session.createProducer(session.createTopic(name));
        producer.send(session.createTextMessage("1"));
        assertEquals("1", next(one).getText());
        producer.send(session.createTextMessage("2"));
        assertEquals("2", next(two).getText());
        assertNull(one.receiveNoWait());
    }

    /** Publishes a text in each of some colours. */
    private static void publish(Session session, Topic topic, String... colours) throws JMSException {
        try (MessageProducer producer = session.createProducer(topic)) {
            for (String colour : colours) {
                TextMessage message = session.createTextMessage(colour);
                message.setStringProperty("colour", colour);
                producer.send(message);
            }
        }
    }

    @Test
    @DisplayName("consumers of topics get what their selector selects")
    void subscriptionSelectors() throws JMSException {
        String name = topic("archive");
        Session session = sessionAs("client " + name, 1);
        Topic topic = session.createTopic(name);
        MessageConsumer own = session.createConsumer(topic, "colour = 'red'");
        MessageConsumer shared = session.createSharedConsumer(topic, "news", "colour IN ('red', 'blue')");
        MessageConsumer durable = session.createDurableConsumer(topic, "mine", "colour <> 'red'", false);
        publish(session, topic, "red", "green", "blue");
        assertEquals("red", next(own).getText());
        assertNull(own.receiveNoWait());
        assertEquals("red", next(shared).getText());
        assertEquals("blue", next(shared).getText());
        assertNull(shared.receiveNoWait());
        assertEquals("green", next(durable).getText());
        durable.close();

        Session elsewhere = sessionAs("client " + name, 2);
        MessageConsumer again = elsewhere.createDurableConsumer(elsewhere.createTopic(name), "mine", "colour <> 'red'", false);
        assertEquals("blue", next(again).getText(), "the selector is the same: the subscription is");
        again.close();
        publish(session, topic, "green");
        MessageConsumer changed = elsewhere.createDurableConsumer(elsewhere.createTopic(name), "mine", "colour = 'red'", false);
        publish(session, topic, "green", "red");
        assertEquals("red", next(changed).getText(), "another selector: a new subscription");
        assertNull(changed.receiveNoWait());
        changed.close();
        elsewhere.unsubscribe("mine");

        session.createSharedDurableConsumer(topic, "both", "colour = 'red'");
        assertThrows(JMSException.class, () -> elsewhere.createSharedDurableConsumer(elsewhere.createTopic(name), "both", "colour = 'blue'"));
        assertThrows(InvalidSelectorException.class, () -> session.createConsumer(topic, "colour ="));
    }

    @Test
    @Timeout(180)
    @DisplayName("its member dies: a durable subscription goes on at another, nothing is lost or repeated")
    void durableFailover() throws JMSException {
        String name = topic("archive");
        Connection connection = closing(factory("failover:(amqp://" + host(doomed()) + ")" + NO_PREFETCH
            + "&failover.reconnectDelay=100&failover.maxReconnectDelay=1000").createConnection());
        connection.setClientID("client " + name);
        connection.start();
        Session session = connection.createSession(Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createDurableConsumer(session.createTopic(name), "mine");
        Session sending = session(Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = sending.createProducer(sending.createTopic(name));
        List<Integer> want = new ArrayList<>();
        List<Integer> have = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            producer.send(sending.createTextMessage("" + i));
            want.add(i);
            if (i < 10) {
                have.add(Integer.valueOf(next(consumer).getText()));
                session.commit();
            } else if (i == 20) {
                kill();
            }
        }
        while (have.size() < want.size()) { // one that was locked for the member that died comes after its lock has ended
            Message message = consumer.receive(90_000);
            assertNotNull(message, "a message after " + have);
            have.add(Integer.valueOf(((TextMessage) message).getText()));
            session.commit();
        }
        assertNull(consumer.receiveNoWait());
        have.sort(null);
        assertEquals(want, have);
        consumer.close();
        session.unsubscribe("mine");
    }

    @Test
    @DisplayName("request and reply over a temporary queue, which ends with its connection")
    void requestReply() throws JMSException {
        String name = queue();
        Session answering = session(Session.AUTO_ACKNOWLEDGE);
        MessageConsumer requests = answering.createConsumer(answering.createQueue(name));
        String url = "amqp://" + host(connectionString(2)) + NO_PREFETCH;
        try (Connection connection = factory(url).createConnection()) {
            connection.start();
            Session asking = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            TemporaryQueue replies = asking.createTemporaryQueue();
            TextMessage question = asking.createTextMessage("question");
            question.setJMSReplyTo(replies);
            asking.createProducer(asking.createQueue(name)).send(question);
            TextMessage request = next(requests);
            answering.createProducer(request.getJMSReplyTo()).send(answering.createTextMessage("answer"));
            MessageConsumer consumer = asking.createConsumer(replies);
            assertEquals("answer", next(consumer).getText());
            consumer.close();
            replies.delete();
            assertThrows(JMSException.class, () -> {
                for (int i = 0; i < 100; i++) { // it is deleted a moment after its link has ended
                    answering.createProducer(request.getJMSReplyTo()).send(answering.createTextMessage("late"));
                    Thread.sleep(100);
                }
            });
        }
    }

    @Test
    @DisplayName("a wrong key is refused by SASL")
    void wrongKey() {
        String url = "amqp://" + host(connectionString(1));
        assertThrows(JMSSecurityException.class, () -> new JmsConnectionFactory(part(1, "SharedAccessKeyName"), "wrong", url).createConnection().start());
        assertThrows(JMSSecurityException.class, () -> new JmsConnectionFactory("Nobody", part(1, "SharedAccessKey"), url).createConnection().start());
    }

    private void roundTrip(String url) throws JMSException {
        String name = secureQueue();
        Session session = connection(url).createSession(Session.AUTO_ACKNOWLEDGE);
        send(session, name, "x");
        MessageConsumer consumer = session.createConsumer(session.createQueue(name));
        assertEquals("x", next(consumer).getText());
        assertNull(consumer.receiveNoWait());
    }

    @Test
    @DisplayName("TLS by the development authority, in the trust store")
    void tls() throws JMSException {
        roundTrip("amqps://" + host(SECURE) + NO_PREFETCH);
    }

    @Test
    @DisplayName("AMQP over WebSocket")
    void webSocket() throws JMSException {
        roundTrip("amqpwss://" + host(SECURE) + "/$servicebus/websocket" + NO_PREFETCH);
    }

    /** A key store with the certificate of a client, as keytool and openssl would make it. */
    static Path keyStore() throws Exception {
        try (InputStream certificate = Files.newInputStream(Path.of(variable("PEEKLOCK_CLIENT_CERT", "client.pem")))) {
            String pem = Files.readString(Path.of(variable("PEEKLOCK_CLIENT_KEY", "client-key.pem")));
            byte[] key = Base64.getMimeDecoder().decode(pem.replaceAll("-----[A-Z ]+-----", ""));
            KeyStore store = KeyStore.getInstance("PKCS12");
            store.load(null, null);
            store.setKeyEntry("client", KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(key)), "changeit".toCharArray(),
                new Certificate[] {CertificateFactory.getInstance("X.509").generateCertificate(certificate)});
            Path file = Files.createTempFile("client", ".p12");
            file.toFile().deleteOnExit();
            try (OutputStream out = Files.newOutputStream(file)) {
                store.store(out, "changeit".toCharArray());
            }
            return file;
        }
    }

    @Test
    @DisplayName("a client certificate in the name of a rule")
    void external() throws Exception {
        String name = queue();
        Connection connection = closing(new JmsConnectionFactory("amqps://" + TRUSTED + NO_PREFETCH
            + "&amqp.saslMechanisms=EXTERNAL&transport.storeType=PKCS12&transport.keyStorePassword=changeit&transport.keyStoreLocation="
            + keyStore() + "&transport.trustStorePassword=changeit&transport.trustStoreLocation=" + System.getProperty("javax.net.ssl.trustStore"))
            .createConnection());
        connection.start();
        Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        send(session, name, "vouched for");
        assertEquals("vouched for", next(session.createConsumer(session.createQueue(name))).getText());
    }

    @Test
    @Timeout(180)
    @DisplayName("its member dies: producer and consumer go on at another")
    void reconnect() throws JMSException {
        String name = queue();
        Session session = connection("failover:(amqp://" + host(doomed()) + ")" + NO_PREFETCH + "&failover.reconnectDelay=100&failover.maxReconnectDelay=1000")
            .createSession(ONE_BY_ONE);
        MessageProducer producer = session.createProducer(session.createQueue(name));
        MessageConsumer consumer = session.createConsumer(session.createQueue(name));
        producer.send(session.createTextMessage("before"));
        assertEquals("before", next(consumer).getText());
        kill();
        producer.send(session.createTextMessage("after"));
        TextMessage after = next(consumer);
        assertEquals("after", after.getText());
        settle(after, ACCEPTED);
        countsBecome(name, "active", 1, "locked", 1); // what was locked before: this client settles it no more
    }
}
