package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.spring.messaging.implementation.annotation.EnableAzureMessaging;
import com.azure.spring.messaging.servicebus.core.ServiceBusTemplate;
import com.azure.spring.messaging.servicebus.implementation.core.annotation.ServiceBusListener;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.SubQueue;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import java.time.Duration;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;

/** Spring Cloud Azure, with the connection string as its only setting: template and listeners. */
@SpringBootTest(classes = CloudAzureTest.Application.class)
class CloudAzureTest {
    private static final LinkedBlockingQueue<String> GOT = new LinkedBlockingQueue<>();
    private static final AtomicInteger ATTEMPTS = new AtomicInteger();
    private static final String ORDERS = Control.queue("{}");
    private static final String POISON = Control.queue("{\"maxDeliveryCount\": 3}");
    private static final String EVENTS = Control.topic("audit");

    @DynamicPropertySource
    static void settings(DynamicPropertyRegistry registry) {
        registry.add("spring.cloud.azure.servicebus.connection-string", () -> Control.MEMBER);
        registry.add("spring.cloud.azure.servicebus.entity-type", () -> "queue");
        registry.add("spring.jms.servicebus.enabled", () -> "false"); // JMS is on the class path for JmsTest
        registry.add("orders", () -> ORDERS);
        registry.add("poison", () -> POISON);
        registry.add("events", () -> EVENTS);
    }

    @Configuration
    @EnableAutoConfiguration
    @EnableAzureMessaging
    static class Application {
        @Bean
        Listeners listeners() {
            return new Listeners();
        }
    }

    static class Listeners {
        @ServiceBusListener(destination = "${orders}")
        void order(String order, @Header("region") String region) {
            GOT.add(order + " " + region);
        }

        @ServiceBusListener(destination = "${poison}")
        void poison(String body) {
            ATTEMPTS.incrementAndGet();
            throw new IllegalStateException("refuses " + body);
        }

        @ServiceBusListener(destination = "${events}", group = "audit")
        void audit(String event) {
            GOT.add(event);
        }
    }

    @Autowired
    private ServiceBusTemplate template;

    @Test
    void listenerOfAQueue() throws Exception {
        template.send(ORDERS, MessageBuilder.withPayload("order 1").setHeader("region", "eu").build());
        assertEquals("order 1 eu", Control.next(GOT));
        Control.counts("/v1/queues/" + ORDERS, "\"active\":0,.*\"locked\":0");
    }

    @Test
    void aMessageThatAlwaysFailsIsDeadLettered() throws Exception {
        template.send(POISON, MessageBuilder.withPayload("poison").build());
        Control.counts("/v1/queues/" + POISON, "\"deadLetter\":1");
        assertEquals(3, ATTEMPTS.get());
        try (ServiceBusReceiverClient dead = new ServiceBusClientBuilder().connectionString(Control.MEMBER).receiver()
                .queueName(POISON).subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient()) {
            var message = dead.receiveMessages(1, Duration.ofSeconds(30)).iterator().next();
            assertEquals("poison", message.getBody().toString());
            assertEquals("MaxDeliveryCountExceeded", message.getDeadLetterReason());
            dead.complete(message);
        }
    }

    @Test
    void listenerOfASubscription() throws Exception {
        template.send(EVENTS, MessageBuilder.withPayload("happened").build());
        assertEquals("happened", Control.next(GOT));
        Control.counts("/v1/subscriptions/" + EVENTS + "/Subscriptions/audit", "\"active\":0,.*\"locked\":0");
    }
}
