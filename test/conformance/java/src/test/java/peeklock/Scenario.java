package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.fail;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.function.Executable;

/**
 * What the tests share: where the members are, clients that end with their test, queues of
 * their own for each test, and waits with a deadline.
 *
 * <p>Without PEEKLOCK_MEMBER_1 to _3 and PEEKLOCK_ADMIN_1 to _3 the members are those of
 * {@code go run ./cmd/peeklock dev}, so that the suite can also be run by hand with
 * {@code mvn test}.
 */
abstract class Scenario {
    /** How late a message may come on a machine that is busy with other tests. */
    static final Duration LATE = Duration.ofMillis(1_500);

    /** A member that speaks TLS: a connection string as the service gives it, and the address of its control API. */
    static final String SECURE = variable("PEEKLOCK_TLS",
        "Endpoint=sb://localhost:5671;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE");

    /** Host and port of member 1, for TLS. */
    static final String TRUSTED = variable("PEEKLOCK_TRUSTED", "localhost:5671");

    private static final String SECURE_ADMIN = variable("PEEKLOCK_TLS_ADMIN", "http://127.0.0.1:5300");

    static {
        trust(Path.of(variable("PEEKLOCK_CA", ".peeklock-dev/tls/ca.pem")));
    }

    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final Pattern COUNT = Pattern.compile("\"(active|locked|deferred|scheduled|deadLetter)\":\\s*(\\d+)");

    /** One builder for each member is one connection for each member. */
    private final Map<Integer, ServiceBusClientBuilder> builders = new ConcurrentHashMap<>();

    private final Deque<AutoCloseable> open = new ArrayDeque<>();

    @AfterEach
    void closeAll() throws Exception {
        synchronized (open) {
            while (!open.isEmpty()) {
                open.pop().close();
            }
        }
    }

    /** Closes something with the test, the last one first. */
    <C extends AutoCloseable> C closing(C client) {
        synchronized (open) {
            open.push(client);
        }
        return client;
    }

    // Where the members are.

    static String connectionString(int member) {
        return variable("PEEKLOCK_MEMBER_" + member, "Endpoint=sb://localhost:" + (5662 + 10 * member)
            + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true");
    }

    /** A part of a member's connection string. */
    static String part(int member, String name) {
        return part(connectionString(member), name);
    }

    /** A part of a connection string. */
    static String part(String connectionString, String name) {
        Matcher found = Pattern.compile("(?:^|;)" + name + "=([^;]*)").matcher(connectionString);
        if (!found.find()) {
            throw new IllegalArgumentException("no " + name + " in a connection string");
        }
        return found.group(1);
    }

    /** A signature by a key over a resource. */
    static String signature(String at, String key, Duration expires) throws GeneralSecurityException {
        String resource = URLEncoder.encode(at, StandardCharsets.UTF_8);
        long expiry = Instant.now().plus(expires).getEpochSecond();
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
        byte[] signed = mac.doFinal((resource + "\n" + expiry).getBytes(StandardCharsets.UTF_8));
        return "SharedAccessSignature sr=" + resource
            + "&sig=" + URLEncoder.encode(Base64.getEncoder().encodeToString(signed), StandardCharsets.UTF_8)
            + "&se=" + expiry + "&skn=" + URLEncoder.encode(part(1, "SharedAccessKeyName"), StandardCharsets.UTF_8);
    }

    /** Makes an authority the one that this JVM trusts, by the means that every JVM has: a trust store. */
    private static void trust(Path authority) {
        if (!Files.exists(authority)) {
            return; // a run by hand, against members without TLS
        }
        try (InputStream in = Files.newInputStream(authority)) {
            KeyStore store = KeyStore.getInstance("PKCS12");
            store.load(null, null);
            store.setCertificateEntry("development", CertificateFactory.getInstance("X.509").generateCertificate(in));
            Path file = Files.createTempFile("trust", ".p12");
            file.toFile().deleteOnExit();
            try (OutputStream out = Files.newOutputStream(file)) {
                store.store(out, "changeit".toCharArray());
            }
            System.setProperty("javax.net.ssl.trustStore", file.toString());
            System.setProperty("javax.net.ssl.trustStoreType", "PKCS12");
            System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
        } catch (IOException | GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    /** A member that is going to die: its connection string, which leads to another one then. */
    static String doomed() {
        return ask("POST", variable("PEEKLOCK_OPERATOR", "http://127.0.0.1:1") + "/doomed", "", Duration.ofSeconds(150));
    }

    /** Kills the doomed member. */
    static void kill() {
        ask("POST", variable("PEEKLOCK_OPERATOR", "http://127.0.0.1:1") + "/kill", "", Duration.ofSeconds(60));
    }

    /** A token of the identity provider, for ten minutes. */
    static String token(String role) {
        String query = "/token?seconds=600&role=" + URLEncoder.encode(role, StandardCharsets.UTF_8);
        return ask("GET", variable("PEEKLOCK_ISSUER", "http://127.0.0.1:1") + query, "", Duration.ofSeconds(20));
    }

    static String variable(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null ? otherwise : value;
    }

    // Clients.

    /**
     * What makes the clients of a member. They try an operation again once at most, and after
     * a short time: retries would hide what went wrong.
     */
    static ServiceBusClientBuilder builder(String connectionString) {
        return new ServiceBusClientBuilder()
            .connectionString(connectionString)
            .retryOptions(new AmqpRetryOptions()
                .setMaxRetries(1)
                .setDelay(Duration.ofMillis(250))
                .setMaxDelay(Duration.ofSeconds(1))
                .setTryTimeout(Duration.ofSeconds(20)));
    }

    /** What makes clients that share one connection to a member. */
    ServiceBusClientBuilder member(int member) {
        return builders.computeIfAbsent(member, m -> builder(connectionString(m)));
    }

    ServiceBusSenderClient sender(int member, String queue) {
        return closing(member(member).sender().queueName(queue).buildClient());
    }

    ServiceBusSenderClient publisher(int member, String topic) {
        return closing(member(member).sender().topicName(topic).buildClient());
    }

    /** A receiver of a subscription, or of its dead letters, that leaves the renewal of locks to the test. */
    ServiceBusReceiverClient subscriber(int member, String topic, String subscription, ServiceBusReceiveMode mode, SubQueue part) {
        return closing(member(member).receiver()
            .topicName(topic)
            .subscriptionName(subscription)
            .receiveMode(mode)
            .subQueue(part)
            .maxAutoLockRenewDuration(Duration.ZERO)
            .buildClient());
    }

    ServiceBusReceiverClient subscriber(int member, String topic, String subscription) {
        return subscriber(member, topic, subscription, ServiceBusReceiveMode.PEEK_LOCK, SubQueue.NONE);
    }

    ServiceBusReceiverClient receiver(int member, String queue) {
        return receiver(member, queue, ServiceBusReceiveMode.PEEK_LOCK, SubQueue.NONE);
    }

    ServiceBusReceiverClient deleting(int member, String queue) {
        return receiver(member, queue, ServiceBusReceiveMode.RECEIVE_AND_DELETE, SubQueue.NONE);
    }

    ServiceBusReceiverClient deadLetters(int member, String queue) {
        return receiver(member, queue, ServiceBusReceiveMode.PEEK_LOCK, SubQueue.DEAD_LETTER_QUEUE);
    }

    ServiceBusReceiverClient deletingDeadLetters(int member, String queue) {
        return receiver(member, queue, ServiceBusReceiveMode.RECEIVE_AND_DELETE, SubQueue.DEAD_LETTER_QUEUE);
    }

    /** A receiver that leaves the renewal of locks to the test. */
    private ServiceBusReceiverClient receiver(int member, String queue, ServiceBusReceiveMode mode, SubQueue part) {
        return closing(member(member).receiver()
            .queueName(queue)
            .receiveMode(mode)
            .subQueue(part)
            .maxAutoLockRenewDuration(Duration.ZERO)
            .buildClient());
    }

    // Messages.

    static ServiceBusMessage message(String body) {
        return new ServiceBusMessage(body);
    }

    /** n bodies in order, with message ids. */
    static List<ServiceBusMessage> numbered(int n) {
        return IntStream.range(0, n).mapToObj(i -> message("" + i).setMessageId("m-" + i)).toList();
    }

    /** The bodies of {@link #numbered}. */
    static List<String> upTo(int n) {
        return IntStream.range(0, n).mapToObj(Integer::toString).toList();
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> bodies = new ArrayList<>();
        messages.forEach(m -> bodies.add(m.getBody().toString()));
        return bodies;
    }

    /** A queue with n numbered messages. */
    String filled(int n, Object... settings) {
        String name = queue(settings);
        sender(1, name).sendMessages(numbered(n));
        return name;
    }

    /** Receives exactly n messages; the client is free to hand out fewer for each call. */
    static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient receiver, int n) {
        Instant deadline = Instant.now().plusSeconds(20);
        List<ServiceBusReceivedMessage> got = new ArrayList<>();
        while (got.size() < n && Instant.now().isBefore(deadline)) {
            receiver.receiveMessages(n - got.size(), Duration.ofSeconds(5)).forEach(got::add);
        }
        assertEquals(n, got.size(), "messages received in time");
        return got;
    }

    /** Receives one message. */
    static ServiceBusReceivedMessage takeOne(ServiceBusReceiverClient receiver) {
        return take(receiver, 1).get(0);
    }

    /** Shows that a receiver gets nothing for a while. */
    static void nothing(ServiceBusReceiverClient receiver) {
        assertEquals(List.of(), bodies(receiver.receiveMessages(1, Duration.ofMillis(700))), "nothing was to be received");
    }

    /** Waits for the failure of a call and checks the reason that programs look at. */
    static ServiceBusException refused(ServiceBusFailureReason reason, Executable call) {
        ServiceBusException error = assertThrows(ServiceBusException.class, call);
        assertEquals(reason, error.getReason(), error.toString());
        return error;
    }

    /**
     * Waits until receiving fails for good. The synchronous receiver wraps what happened in a
     * plain exception, and stays broken.
     */
    static void refusedToReceive(AmqpErrorCondition condition, ServiceBusReceiverClient receiver) {
        refusedByAmqp(condition, () -> bodies(receiver.receiveMessages(1, Duration.ofSeconds(10))));
    }

    /** Waits for the failure of a call that throws, or wraps, what AMQP said. */
    static void refusedByAmqp(AmqpErrorCondition condition, Executable call) {
        Throwable error = assertThrows(RuntimeException.class, call);
        Throwable cause = error;
        while (cause != null && !(cause instanceof AmqpException)) {
            cause = cause.getCause();
        }
        if (cause == null) {
            fail("nothing of AMQP in the causes", error);
        } else {
            assertEquals(condition, ((AmqpException) cause).getErrorCondition(), cause.toString());
        }
    }

    // The control API.

    /** Asks the control API of a member. */
    static String control(String method, String path, String body, int member) {
        String at = variable("PEEKLOCK_ADMIN_" + member, "http://127.0.0.1:" + (5290 + 10 * member));
        return ask(method, at + path, body, Duration.ofSeconds(20));
    }

    private static String ask(String method, String at, String body, Duration within) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(at))
            .header("Content-Type", "application/json")
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .timeout(within)
            .build();
        try {
            HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() / 100 != 2) {
                fail(method + " " + at + ": " + answer.statusCode() + " " + answer.body());
            }
            return answer.body();
        } catch (IOException | InterruptedException e) {
            return fail(method + " " + at, e);
        }
    }

    /** Creates a queue at the members that speak TLS, and returns its name. */
    static String secureQueue() {
        String name = "java-" + UUID.randomUUID();
        ask("PUT", SECURE_ADMIN + "/v1/queues/" + name, "{}", Duration.ofSeconds(20));
        return name;
    }

    /** Creates a queue for one test, from names and values of settings, and returns its name. */
    static String queue(Object... settings) {
        String name = "java-" + UUID.randomUUID();
        create(name, settings);
        return name;
    }

    /** Creates a queue of a given name, which may have parts. */
    static void create(String name, Object... settings) {
        make("/v1/queues/" + name.replace("/", "%2F"), settings);
    }

    /** Creates a topic with subscriptions of given names, and returns its name. */
    static String topic(String... subscriptions) {
        String name = "java-" + UUID.randomUUID();
        make("/v1/topics/" + name);
        for (String subscription : subscriptions) {
            subscribe(name, subscription);
        }
        return name;
    }

    static void subscribe(String topic, String subscription, Object... settings) {
        make("/v1/subscriptions/" + topic + "/Subscriptions/" + subscription, settings);
    }

    private static void make(String path, Object... settings) {
        StringBuilder body = new StringBuilder("{");
        for (int i = 0; i < settings.length; i += 2) {
            Object value = settings[i + 1] instanceof String ? "\"" + settings[i + 1] + "\"" : settings[i + 1];
            body.append(i == 0 ? "" : ",").append('"').append(settings[i]).append("\":").append(value);
        }
        control("PUT", path, body.append('}').toString(), 1);
    }

    /** The counts of a queue, as a member sees them. */
    static Map<String, Long> counts(String name, int member) {
        Matcher found = COUNT.matcher(control("GET", "/v1/queues/" + name, "", member));
        Map<String, Long> counts = new HashMap<>();
        while (found.find()) {
            counts.put(found.group(1), Long.parseLong(found.group(2)));
        }
        return counts;
    }

    /** Waits until a queue has these counts, in pairs of name and number; others are not looked at. */
    static void countsBecome(String name, Object... want) {
        eventually(Duration.ofSeconds(10), () -> {
            Map<String, Long> have = counts(name, 1);
            for (int i = 0; i < want.length; i += 2) {
                assertEquals(((Integer) want[i + 1]).longValue(), have.get((String) want[i]), want[i] + " of " + have);
            }
        });
    }

    // Time.

    /** Tries until an attempt succeeds, or throws what the last one threw. */
    static void eventually(Duration within, Executable attempt) {
        Instant deadline = Instant.now().plus(within);
        for (;;) {
            try {
                attempt.execute();
                return;
            } catch (Throwable error) {
                if (Instant.now().isAfter(deadline)) {
                    fail(error);
                }
            }
            sleep(Duration.ofMillis(50));
        }
    }

    static void sleep(Duration time) {
        try {
            Thread.sleep(Math.max(0, time.toMillis()));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            fail(e);
        }
    }

    /** Waits until a moment on the clock of this machine, which is that of the members too. */
    static void until(OffsetDateTime moment) {
        sleep(Duration.between(OffsetDateTime.now(), moment));
    }

    /** Waits until the lock of a message has run out. */
    static void afterLock(ServiceBusReceivedMessage message) {
        until(message.getLockedUntil().plus(Duration.ofMillis(300)));
    }

    static OffsetDateTime in(Duration time) {
        return OffsetDateTime.now().plus(time);
    }
}
