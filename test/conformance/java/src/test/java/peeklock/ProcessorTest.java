package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusClientBuilder.ServiceBusProcessorClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** The processor client: handlers that run side by side. */
class ProcessorTest extends Scenario {
    private final List<Throwable> errors = new CopyOnWriteArrayList<>();

    /** A processor of a member's queue; what goes wrong gathers in errors. */
    private ServiceBusProcessorClientBuilder processor(int member, String queue, Consumer<ServiceBusReceivedMessageContext> handle) {
        return member(member).processor()
            .queueName(queue)
            .processMessage(handle)
            .processError(context -> errors.add(context.getException()));
    }

    private ServiceBusProcessorClient started(ServiceBusProcessorClientBuilder builder) {
        ServiceBusProcessorClient processor = closing(builder.buildProcessorClient());
        processor.start();
        return processor;
    }

    private static List<String> sorted(List<String> numbers) {
        return numbers.stream().sorted(java.util.Comparator.comparing(Integer::valueOf)).toList();
    }

    @Test
    @DisplayName("C.10 the sample: a queue with three attempts, a batch of ten, ten handlers")
    void sample() {
        String name = queue("maxDeliveryCount", 3);
        ServiceBusSenderClient sender = sender(1, name);
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        numbered(10).forEach(m -> assertTrue(batch.tryAddMessage(m)));
        sender.sendMessages(batch);
        List<String> seen = new CopyOnWriteArrayList<>();
        started(processor(1, name, context -> {
            context.complete();
            seen.add(context.getMessage().getBody().toString());
        }).disableAutoComplete().maxConcurrentCalls(10));
        countsBecome(name, "active", 0);
        eventually(Duration.ofSeconds(5), () -> assertEquals(upTo(10), sorted(seen)));
        assertEquals(List.of(), errors);
    }

    @Test
    @DisplayName("T.9 concurrent handlers with automatic completion")
    void concurrent() {
        String name = queue();
        List<String> seen = new CopyOnWriteArrayList<>();
        AtomicInteger now = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        started(processor(2, name, context -> {
            most.accumulateAndGet(now.incrementAndGet(), Math::max);
            sleep(Duration.ofMillis(5));
            seen.add(context.getMessage().getBody().toString());
            now.decrementAndGet();
        }).maxConcurrentCalls(8));
        sender(1, name).sendMessages(numbered(200));
        countsBecome(name, "active", 0, "locked", 0, "deadLetter", 0);
        assertEquals(upTo(200), sorted(seen));
        assertTrue(most.get() > 1 && most.get() <= 8, most + " handlers at once");
        assertEquals(List.of(), errors);
    }

    @Test
    @DisplayName("C.1 competing processors at three members share the messages, each one once")
    void competing() {
        String name = queue();
        List<List<String>> seen = List.of(new CopyOnWriteArrayList<>(), new CopyOnWriteArrayList<>(), new CopyOnWriteArrayList<>());
        for (int member = 1; member <= 3; member++) {
            List<String> own = seen.get(member - 1);
            started(processor(member, name, context -> {
                sleep(Duration.ofMillis(5));
                own.add(context.getMessage().getBody().toString());
            }).maxConcurrentCalls(5));
        }
        sender(1, name).sendMessages(numbered(300));
        countsBecome(name, "active", 0);
        assertEquals(upTo(300), sorted(seen.stream().flatMap(List::stream).toList()));
        for (int member = 1; member <= 3; member++) {
            assertTrue(seen.get(member - 1).size() > 10, "member " + member + " got " + seen.get(member - 1).size());
        }
        assertEquals(List.of(), errors);
    }

    @Test
    @DisplayName("T.10 a handler that throws abandons the message, which comes again")
    void throwing() {
        String name = filled(1);
        List<Long> attempts = new CopyOnWriteArrayList<>();
        started(processor(1, name, context -> {
            attempts.add(context.getMessage().getDeliveryCount());
            if (attempts.size() < 3) {
                throw new IllegalStateException("not yet");
            }
        }));
        countsBecome(name, "active", 0, "deadLetter", 0);
        assertEquals(List.of(0L, 1L, 2L), attempts);
        assertEquals(2, errors.size());
    }

    @Test
    @DisplayName("T.6 the processor renews the lock of a handler that takes long")
    void renewing() {
        String name = queue("lockDuration", "5s", "maxDeliveryCount", 1);
        sender(2, name).sendMessage(message("long"));
        List<String> seen = new CopyOnWriteArrayList<>();
        started(processor(3, name, context -> {
            ServiceBusReceivedMessage message = context.getMessage();
            OffsetDateTime original = message.getLockedUntil();
            until(original.plusSeconds(1));
            seen.add(message.getBody().toString());
        }));
        eventually(Duration.ofSeconds(15), () -> assertEquals(List.of("long"), seen));
        countsBecome(name, "active", 0, "locked", 0, "deadLetter", 0);
        assertEquals(List.of(), errors);
    }

    @Test
    @DisplayName("C.10 a processor that was stopped takes nothing more, and can be started again")
    void stopped() {
        // The client stops without taking its credit back first. What crosses its detach stays
        // locked until its lock ends.
        String name = queue("lockDuration", "5s");
        List<String> seen = new CopyOnWriteArrayList<>();
        ServiceBusProcessorClient processor = started(processor(1, name, context -> seen.add(context.getMessage().getBody().toString())));
        ServiceBusSenderClient sender = sender(2, name);
        sender.sendMessage(message("before"));
        eventually(Duration.ofSeconds(10), () -> assertEquals(List.of("before"), seen));
        countsBecome(name, "active", 0);
        processor.stop();
        sender.sendMessage(message("while stopped"));
        sleep(Duration.ofMillis(500));
        assertEquals(List.of("before"), seen);
        processor.start();
        eventually(Duration.ofSeconds(20), () -> assertEquals(List.of("before", "while stopped"), seen));
        countsBecome(name, "active", 0, "deadLetter", 0);
    }

    @Test
    @DisplayName("C.10 a processor reports an unknown entity to its handler")
    void unknown() {
        started(processor(1, "java-no-such-queue", context -> { }));
        eventually(Duration.ofSeconds(10), () -> assertTrue(!errors.isEmpty(), "an error was to come"));
        ServiceBusException error = (ServiceBusException) errors.get(0);
        assertEquals(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, error.getReason(), error.toString());
    }
}
