package peeklock;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/** The members and their control API. */
final class Control {
    static final String MEMBER = System.getenv("PEEKLOCK_MEMBER_1");
    private static final int WITHIN_SECONDS = 60;

    private Control() {}

    /** A part of the connection string. */
    static String part(String name) {
        for (String part : MEMBER.split(";")) {
            if (part.startsWith(name + "=")) {
                return part.substring(name.length() + 1);
            }
        }
        throw new IllegalArgumentException(name);
    }

    static String call(String method, String path, String body) {
        try {
            var request = HttpRequest.newBuilder(URI.create(System.getenv("PEEKLOCK_ADMIN_1") + path))
                .method(method, HttpRequest.BodyPublishers.ofString(body)).header("Content-Type", "application/json").build();
            var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
            assertTrue(answer.statusCode() < 300, answer.statusCode() + " " + answer.body());
            return answer.body();
        } catch (java.io.IOException | InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    static String queue(String settings) {
        String name = "spring-" + UUID.randomUUID();
        call("PUT", "/v1/queues/" + name, settings);
        return name;
    }

    static String topic(String subscription) {
        String name = "spring-" + UUID.randomUUID();
        call("PUT", "/v1/topics/" + name, "{}");
        call("PUT", "/v1/subscriptions/" + name + "/Subscriptions/" + subscription, "{}");
        return name;
    }

    /** Waits until the counts of an entity match a pattern. */
    static void counts(String path, String pattern) throws InterruptedException {
        String have = "";
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WITHIN_SECONDS); System.nanoTime() < end; Thread.sleep(100)) {
            have = call("GET", path, "").replaceAll("\\s", "");
            if (have.matches(".*" + pattern + ".*")) {
                return;
            }
        }
        throw new AssertionError(path + " is " + have);
    }

    static <T> T next(BlockingQueue<T> got) throws InterruptedException {
        T one = got.poll(WITHIN_SECONDS, TimeUnit.SECONDS);
        assertNotNull(one, "nothing came");
        return one;
    }
}
