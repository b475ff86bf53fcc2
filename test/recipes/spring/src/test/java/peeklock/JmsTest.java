package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jms.annotation.EnableJms;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.config.DefaultJmsListenerContainerFactory;
import org.springframework.jms.connection.CachingConnectionFactory;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;
import org.springframework.test.context.junit.jupiter.SpringJUnitConfig;

/**
 * Spring JMS over Qpid JMS: template, listeners, transacted sessions, and subscriptions. After a rollback, a message comes again
 * when its lock ends: Qpid JMS has settled it on its side, and the broker keeps the lock.
 */
@SpringJUnitConfig
class JmsTest {
    private static final LinkedBlockingQueue<String> GOT = new LinkedBlockingQueue<>();
    private static final AtomicInteger ATTEMPTS = new AtomicInteger();
    private static final String ORDERS = Control.queue("{\"lockDuration\": \"5s\"}");
    private static final String INVOICES = Control.queue("{}");
    private static final String POISON = Control.queue("{\"maxDeliveryCount\": 3, \"lockDuration\": \"5s\"}");
    private static final String REQUESTS = Control.queue("{}");
    private static final LinkedBlockingQueue<String> SELECTED = new LinkedBlockingQueue<>();
    private static final String EVENTS = Control.topic("audit");

    @DynamicPropertySource
    static void names(DynamicPropertyRegistry registry) {
        registry.add("orders", () -> ORDERS);
        registry.add("invoices", () -> INVOICES);
        registry.add("poison", () -> POISON);
        registry.add("requests", () -> REQUESTS);
        registry.add("audit", () -> EVENTS + "/Subscriptions/audit");
        registry.add("events", () -> EVENTS);
    }

    @Configuration
    @EnableJms
    static class Application {
        @Bean
        ConnectionFactory connectionFactory() {
            String host = Control.part("Endpoint").replace("sb://", "").replaceAll("/$", "");
            return new CachingConnectionFactory(
                new JmsConnectionFactory(Control.part("SharedAccessKeyName"), Control.part("SharedAccessKey"), "amqp://" + host));
        }

        @Bean
        JmsTemplate jmsTemplate(ConnectionFactory factory) {
            return new JmsTemplate(factory);
        }

        @Bean
        DefaultJmsListenerContainerFactory jmsListenerContainerFactory() {
            return transacted();
        }

        private static DefaultJmsListenerContainerFactory transacted() {
            var factory = new DefaultJmsListenerContainerFactory();
            String host = Control.part("Endpoint").replace("sb://", "").replaceAll("/$", "");
            factory.setConnectionFactory(
                new JmsConnectionFactory(Control.part("SharedAccessKeyName"), Control.part("SharedAccessKey"), "amqp://" + host));
            factory.setSessionTransacted(true);
            return factory;
        }

        /** Listeners with durable subscriptions, which they create. */
        @Bean
        DefaultJmsListenerContainerFactory durable() {
            var factory = transacted();
            factory.setSubscriptionDurable(true); // of a topic, therefore
            factory.setClientId("spring");
            return factory;
        }

        @Bean
        Listeners listeners() {
            return new Listeners();
        }
    }

    static class Listeners {
        @Autowired
        private JmsTemplate template;

        /** The session is transacted: the message is settled and the invoice sent, or neither. */
        @JmsListener(destination = "${orders}")
        void order(Message order, jakarta.jms.Session session) throws JMSException {
            var invoice = session.createTextMessage("invoice for " + order.getBody(String.class));
            invoice.setStringProperty("region", order.getStringProperty("region"));
            session.createProducer(session.createQueue(INVOICES)).send(invoice);
            if (ATTEMPTS.incrementAndGet() == 1) {
                throw new IllegalStateException("the first attempt fails");
            }
        }

        @JmsListener(destination = "${poison}")
        void poison(String body) {
            throw new IllegalStateException("refuses " + body);
        }

        @JmsListener(destination = "${requests}")
        String request(String question) {
            return question + " = 42";
        }

        @JmsListener(destination = "${events}", containerFactory = "durable", subscription = "selected", selector = "region = 'eu'")
        void selected(String event) {
            SELECTED.add(event);
        }

        @JmsListener(destination = "${audit}")
        void audit(String event) {
            GOT.add(event);
        }
    }

    @Autowired
    private JmsTemplate template;

    /** What an attempt that failed has sent never arrives. */
    @Test
    void listenerOfATransactedSession() throws Exception {
        template.convertAndSend(ORDERS, "order 1", message -> {
            message.setStringProperty("region", "eu");
            return message;
        });
        template.setReceiveTimeout(60_000);
        Message invoice = template.receive(INVOICES);
        assertEquals("invoice for order 1", invoice.getBody(String.class));
        assertEquals("eu", invoice.getStringProperty("region"));
        assertEquals(2, ATTEMPTS.get());
        template.setReceiveTimeout(1_000);
        assertNull(template.receive(INVOICES));
        Control.counts("/v1/queues/" + ORDERS, "\"active\":0,.*\"locked\":0");
    }

    @Test
    void aMessageThatAlwaysFailsIsDeadLettered() throws Exception {
        template.convertAndSend(POISON, "poison");
        Control.counts("/v1/queues/" + POISON, "\"deadLetter\":1");
        template.setReceiveTimeout(60_000);
        Message dead = template.receive(POISON + "/$DeadLetterQueue");
        assertEquals("poison", dead.getBody(String.class));
        assertEquals("MaxDeliveryCountExceeded", dead.getStringProperty("DeadLetterReason"));
    }

    /** The reply comes over a temporary queue. */
    @Test
    void requestAndReply() throws Exception {
        template.setReceiveTimeout(60_000);
        Message answer = template.sendAndReceive(REQUESTS, session -> session.createTextMessage("6 * 7"));
        assertEquals("6 * 7 = 42", answer.getBody(String.class));
    }

    @Test
    void listenerWithADurableSubscription() throws Exception {
        var topic = new JmsTemplate(template.getConnectionFactory());
        topic.setPubSubDomain(true);
        Control.counts("/v1/topics/" + EVENTS, "\"subscriptions\":2"); // the listener has attached
        for (String region : new String[] {"us", "eu"}) {
            topic.convertAndSend(EVENTS, "in " + region, message -> {
                message.setStringProperty("region", region);
                return message;
            });
        }
        assertEquals("in eu", Control.next(SELECTED));
    }

    @Test
    void listenerOfASubscription() throws Exception {
        var topic = new JmsTemplate(template.getConnectionFactory());
        topic.setPubSubDomain(true);
        topic.convertAndSend(EVENTS, "happened");
        for (String got = Control.next(GOT); !got.equals("happened"); got = Control.next(GOT)) {
            // another test sends to the topic too
        }
        Control.counts("/v1/subscriptions/" + EVENTS + "/Subscriptions/audit", "\"active\":0,.*\"locked\":0");
    }
}
