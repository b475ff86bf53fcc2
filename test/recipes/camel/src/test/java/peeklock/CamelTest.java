package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.camel.Exchange;
import org.apache.camel.Message;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.amqp.AMQPComponent;
import org.apache.camel.impl.DefaultCamelContext;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.Test;

/** Routes as programs have them: azure-servicebus with the connection string, and amqp with name and key of a rule. */
class CamelTest {
    private static final int WITHIN_SECONDS = 60;
    private static final String MEMBER = System.getenv("PEEKLOCK_MEMBER_1");

    private static String part(String name) {
        for (String part : MEMBER.split(";")) {
            if (part.startsWith(name + "=")) {
                return part.substring(name.length() + 1);
            }
        }
        throw new IllegalArgumentException(name);
    }

    private static String control(String method, String path, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(System.getenv("PEEKLOCK_ADMIN_1") + path))
            .method(method, HttpRequest.BodyPublishers.ofString(body)).header("Content-Type", "application/json").build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        assertTrue(answer.statusCode() < 300, answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    private static String queue(String settings) throws Exception {
        String name = "camel-" + UUID.randomUUID();
        control("PUT", "/v1/queues/" + name, settings);
        return name;
    }

    private static void emptied(String path) throws Exception {
        String counts = "";
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WITHIN_SECONDS); System.nanoTime() < end; Thread.sleep(100)) {
            counts = control("GET", path, "");
            if (counts.matches("(?s).*\"active\":\\s*0[,}].*") && counts.matches("(?s).*\"locked\":\\s*0[,}].*")) {
                return;
            }
        }
        throw new AssertionError(path + " is not empty: " + counts);
    }

    private static DefaultCamelContext started(RouteBuilder routes) throws Exception {
        var context = new DefaultCamelContext();
        context.getPropertiesComponent().addOverrideProperty("servicebus", MEMBER);
        String host = part("Endpoint").replace("sb://", "").replaceAll("/$", "");
        var factory = new JmsConnectionFactory(part("SharedAccessKeyName"), part("SharedAccessKey"), "amqp://" + host);
        context.addComponent("amqp", new AMQPComponent(factory));
        context.addRoutes(routes);
        context.start();
        return context;
    }

    private static Exchange next(LinkedBlockingQueue<Exchange> got) throws InterruptedException {
        Exchange exchange = got.poll(WITHIN_SECONDS, TimeUnit.SECONDS);
        assertNotNull(exchange, "nothing came");
        return exchange;
    }

    private static final String SERVICE_BUS = "?connectionString=RAW({{servicebus}})";

    /** From one queue to a topic, and from a subscription of it: body, headers and ids pass; what was processed is gone. */
    @Test
    void queueToTopicToSubscription() throws Exception {
        String from = queue("{}");
        String topic = "camel-" + UUID.randomUUID();
        control("PUT", "/v1/topics/" + topic, "{}");
        control("PUT", "/v1/subscriptions/" + topic + "/Subscriptions/all", "{}");
        var got = new LinkedBlockingQueue<Exchange>();
        try (var context = started(new RouteBuilder() {
            @Override
            public void configure() {
                from("azure-servicebus:" + from + SERVICE_BUS)
                    .transform(simple("${body} of Camel"))
                    .to("azure-servicebus:" + topic + SERVICE_BUS + "&serviceBusType=topic");
                from("azure-servicebus:" + topic + SERVICE_BUS + "&serviceBusType=topic&subscriptionName=all")
                    .process(got::add);
            }
        }); var template = context.createProducerTemplate()) {
            for (int i = 0; i < 20; i++) {
                template.sendBodyAndHeader("azure-servicebus:" + from + SERVICE_BUS, "message " + i,
                    "CamelAzureServiceBusApplicationProperties", new HashMap<>(Map.of("n", i)));
            }
            var seen = new java.util.TreeSet<String>();
            for (int i = 0; i < 20; i++) {
                Message message = next(got).getMessage();
                seen.add(message.getBody(String.class));
                assertTrue((Long) message.getHeader("CamelAzureServiceBusSequenceNumber") > 0);
            }
            assertEquals(20, seen.size(), seen.toString());
            assertTrue(seen.contains("message 7 of Camel"), seen.toString());
            emptied("/v1/queues/" + from);
            emptied("/v1/subscriptions/" + topic + "/Subscriptions/all");
        }
    }

    /** A route that fails abandons the message until the broker dead-letters it; another route reads the dead-letter queue. */
    @Test
    void aFailingRouteRetriesAndDeadLetters() throws Exception {
        String queue = queue("{\"maxDeliveryCount\": 3}");
        var attempts = new AtomicInteger();
        var dead = new LinkedBlockingQueue<Exchange>();
        try (var context = started(new RouteBuilder() {
            @Override
            public void configure() {
                from("azure-servicebus:" + queue + SERVICE_BUS).process(e -> {
                    attempts.incrementAndGet();
                    throw new IllegalStateException("refuses " + e.getMessage().getBody(String.class));
                });
                from("azure-servicebus:" + queue + SERVICE_BUS + "&subQueue=DEAD_LETTER_QUEUE").process(dead::add);
            }
        }); var template = context.createProducerTemplate()) {
            template.sendBody("azure-servicebus:" + queue + SERVICE_BUS, "poison");
            Message message = next(dead).getMessage();
            assertEquals("poison", message.getBody(String.class));
            assertEquals("MaxDeliveryCountExceeded", message.getHeader("CamelAzureServiceBusDeadLetterReason"));
            assertEquals(3, attempts.get());
        }
    }

    /** With enableDeadLettering, a route that fails dead-letters at once, with the exception as the reason. */
    @Test
    void aFailingRouteDeadLettersAtOnce() throws Exception {
        String queue = queue("{}");
        var dead = new LinkedBlockingQueue<Exchange>();
        try (var context = started(new RouteBuilder() {
            @Override
            public void configure() {
                from("azure-servicebus:" + queue + SERVICE_BUS + "&enableDeadLettering=true").process(e -> {
                    throw new IllegalStateException("cannot parse");
                });
                from("azure-servicebus:" + queue + SERVICE_BUS + "&subQueue=DEAD_LETTER_QUEUE").process(dead::add);
            }
        }); var template = context.createProducerTemplate()) {
            template.sendBody("azure-servicebus:" + queue + SERVICE_BUS, "poison");
            Message message = next(dead).getMessage();
            assertTrue(message.getHeaders().toString().contains("cannot parse"), message.getHeaders().toString());
        }
    }

    /** The component amqp over Qpid JMS: one way, and request and reply over a temporary queue. */
    @Test
    void amqpComponent() throws Exception {
        String queue = queue("{}");
        String requests = queue("{}");
        var got = new LinkedBlockingQueue<Exchange>();
        try (var context = started(new RouteBuilder() {
            @Override
            public void configure() {
                from("amqp:queue:" + queue).process(got::add);
                from("amqp:queue:" + requests).transform(simple("${body} = 42"));
            }
        }); var template = context.createProducerTemplate()) {
            template.sendBodyAndHeader("amqp:queue:" + queue, "one way", "region", "eu");
            Message message = next(got).getMessage();
            assertEquals("one way", message.getBody(String.class));
            assertEquals("eu", message.getHeader("region"));
            assertEquals("6 * 7 = 42", template.requestBody("amqp:queue:" + requests + "?replyToType=Temporary", "6 * 7", String.class));
            emptied("/v1/queues/" + queue);
            emptied("/v1/queues/" + requests);
        }
    }
}
