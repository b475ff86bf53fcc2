package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static peeklock.QpidTest.NO_PREFETCH;
import static peeklock.QpidTest.factory;
import static peeklock.QpidTest.host;
import static peeklock.QpidTest.next;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Consumers of Qpid JMS with selectors, on queues that they share with others. */
class QpidSelectorTest extends Scenario {
    /** A session on a connection of its own to a member. */
    private Session session(int member, String options, int mode) throws JMSException {
        Connection connection = closing(factory("amqp://" + host(connectionString(member)) + options).createConnection());
        connection.start();
        return connection.createSession(mode);
    }

    /** Sends the numbers from 0 on, whose types take turns. */
    private static void sendTyped(Session session, String queue, int messages, String... types) throws JMSException {
        try (MessageProducer producer = session.createProducer(session.createQueue(queue))) {
            for (int i = 0; i < messages; i++) {
                TextMessage message = session.createTextMessage("" + i);
                message.setJMSType(types[i % types.length]);
                producer.send(message);
            }
        }
    }

    /** The numbers that sendTyped gives to one of the types. */
    private static List<String> numbers(int messages, int types, int type) {
        return IntStream.range(0, messages).filter(i -> i % types == type).mapToObj(i -> "" + i).toList();
    }

    private static List<String> receive(MessageConsumer consumer, int messages) {
        try {
            List<String> texts = new ArrayList<>();
            for (int i = 0; i < messages; i++) {
                texts.add(next(consumer).getText());
            }
            return texts;
        } catch (JMSException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    @DisplayName("consumers with disjoint selectors, under load: each gets its messages, once and in order, and the others stay")
    void disjoint() throws JMSException {
        final int each = 300;
        String name = queue();
        String prefetch = ""; // the usual one, 1000
        Session one = session(1, prefetch, Session.AUTO_ACKNOWLEDGE);
        Session two = session(2, prefetch, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer red = one.createConsumer(one.createQueue(name), "JMSType = 'red'");
        MessageConsumer blue = two.createConsumer(two.createQueue(name), "JMSType IN ('blue', 'azure')");
        CompletableFuture<List<String>> reds = CompletableFuture.supplyAsync(() -> receive(red, each));
        CompletableFuture<List<String>> blues = CompletableFuture.supplyAsync(() -> receive(blue, each));
        sendTyped(session(3, prefetch, Session.AUTO_ACKNOWLEDGE), name, 3 * each, "red", "blue", "green");
        assertEquals(numbers(3 * each, 3, 0), reds.join());
        assertEquals(numbers(3 * each, 3, 1), blues.join());
        assertNull(red.receive(500));
        assertNull(blue.receive(500));
        countsBecome(name, "active", each, "locked", 0);
        MessageConsumer rest = one.createConsumer(one.createQueue(name));
        assertEquals(numbers(3 * each, 3, 2), receive(rest, each));
    }

    @Test
    @DisplayName("request and reply over a queue that several programs share, by correlation id")
    void requestReply() throws JMSException {
        String requests = queue();
        String replies = queue();
        Session answering = session(1, NO_PREFETCH, Session.AUTO_ACKNOWLEDGE);
        MessageProducer answers = answering.createProducer(answering.createQueue(replies));
        answering.createConsumer(answering.createQueue(requests)).setMessageListener(message -> {
            try {
                TextMessage answer = answering.createTextMessage("answer to " + ((TextMessage) message).getText());
                answer.setJMSCorrelationID(message.getJMSCorrelationID());
                answers.send(answer);
            } catch (JMSException e) {
                throw new IllegalStateException(e);
            }
        });
        List<CompletableFuture<Void>> programs = new ArrayList<>();
        for (int program = 1; program <= 3; program++) {
            Session asking = session(program, NO_PREFETCH, Session.AUTO_ACKNOWLEDGE);
            String who = "program " + program;
            programs.add(CompletableFuture.runAsync(() -> {
                try {
                    MessageProducer producer = asking.createProducer(asking.createQueue(requests));
                    for (int i = 0; i < 10; i++) {
                        String id = UUID.randomUUID().toString();
                        TextMessage question = asking.createTextMessage(who + " " + i);
                        question.setJMSCorrelationID(id);
                        producer.send(question);
                        try (MessageConsumer consumer = asking.createConsumer(asking.createQueue(replies), "JMSCorrelationID = '" + id + "'")) {
                            assertEquals("answer to " + who + " " + i, next(consumer).getText());
                        }
                    }
                } catch (JMSException e) {
                    throw new IllegalStateException(e);
                }
            }));
        }
        programs.forEach(CompletableFuture::join);
        countsBecome(replies, "active", 0, "locked", 0);
    }

    @Test
    @DisplayName("CLIENT_ACKNOWLEDGE: what is recovered comes again, before what follows, and what is acknowledged does not")
    void clientAcknowledge() throws JMSException {
        String name = queue();
        Session session = session(1, NO_PREFETCH, Session.CLIENT_ACKNOWLEDGE);
        sendTyped(session, name, 6, "red", "blue");
        MessageConsumer consumer = session.createConsumer(session.createQueue(name), "JMSType = 'red'");
        assertEquals(List.of("0", "2"), receive(consumer, 2));
        session.recover();
        TextMessage again = next(consumer);
        assertEquals("0", again.getText());
        assertEquals(2, again.getIntProperty("JMSXDeliveryCount"));
        assertEquals("2", next(consumer).getText());
        Message last = next(consumer);
        assertEquals("4", ((TextMessage) last).getText());
        last.acknowledge();
        assertNull(consumer.receiveNoWait());
        countsBecome(name, "active", 3, "locked", 0);
    }

    @Test
    @DisplayName("a transacted session: what is rolled back comes again")
    void transaction() throws JMSException {
        String name = queue("lockDuration", "5s"); // what is rolled back stays locked until its lock has ended
        sendTyped(session(1, NO_PREFETCH, Session.AUTO_ACKNOWLEDGE), name, 4, "red", "blue");
        Session session = session(1, NO_PREFETCH, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(session.createQueue(name), "JMSType = 'blue'");
        assertEquals("1", next(consumer).getText());
        session.rollback();
        assertEquals("3", next(consumer).getText());
        session.commit();
        assertEquals("1", next(consumer).getText());
        session.commit();
        countsBecome(name, "active", 2, "locked", 0);
    }

    @Test
    @DisplayName("no message that is there matches: receiveNoWait returns at once, and so does the end of a receive")
    void nothingMatches() throws JMSException {
        String name = queue();
        Session session = session(1, NO_PREFETCH, Session.AUTO_ACKNOWLEDGE);
        sendTyped(session, name, 3, "red");
        MessageConsumer consumer = session.createConsumer(session.createQueue(name), "JMSType = 'blue'");
        assertNull(consumer.receiveNoWait());
        assertNull(consumer.receive(100));
        sendTyped(session, name, 1, "blue");
        assertEquals("0", next(consumer).getText());
    }
}
