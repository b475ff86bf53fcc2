package peeklock;

import static com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGING_ENTITY_ALREADY_EXISTS;
import static com.azure.messaging.servicebus.ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Topics, subscriptions, and their rules, which this client manages over its connection. */
class TopicTest extends Scenario {
    private ServiceBusRuleManagerClient rules(int member, String topic, String subscription) {
        return closing(member(member).ruleManager().topicName(topic).subscriptionName(subscription).buildClient());
    }

    private static Map<String, RuleProperties> listed(ServiceBusRuleManagerClient rules) {
        Map<String, RuleProperties> listed = new HashMap<>();
        rules.listRules().forEach(rule -> listed.put(rule.getName(), rule));
        return listed;
    }

    private static ServiceBusMessage order(String id, String region, int amount) {
        ServiceBusMessage message = message(id).setMessageId(id).setSubject(region);
        message.getApplicationProperties().put("amount", amount);
        return message;
    }

    @Test
    @DisplayName("each subscription gets each message, in order, to settle for itself, at any member")
    void publish() {
        String topic = topic("a", "b");
        ServiceBusSenderClient publisher = publisher(1, topic);
        publisher.sendMessages(numbered(5));
        publisher.sendMessage(message("5"));
        ServiceBusReceiverClient a = subscriber(2, topic, "a");
        ServiceBusReceiverClient b = subscriber(3, topic, "b");
        List<ServiceBusReceivedMessage> got = take(a, 6);
        assertEquals(upTo(6), bodies(got));
        got.forEach(a::complete);
        nothing(a);
        assertEquals(upTo(6), bodies(b.peekMessages(10)));
        List<ServiceBusReceivedMessage> other = take(b, 6);
        assertEquals(upTo(6), bodies(other));
        b.abandon(other.get(0));
        b.deadLetter(other.get(1), new DeadLetterOptions().setDeadLetterReason("why"));
        b.defer(other.get(2));
        assertEquals("2", b.receiveDeferredMessage(other.get(2).getSequenceNumber()).getBody().toString());
        assertEquals(1, takeOne(b).getDeliveryCount());
        ServiceBusReceivedMessage dead = takeOne(
            subscriber(1, topic, "b", ServiceBusReceiveMode.RECEIVE_AND_DELETE, SubQueue.DEAD_LETTER_QUEUE));
        assertEquals("1", dead.getBody().toString());
        assertEquals("why", dead.getDeadLetterReason());
    }

    @Test
    @DisplayName("scheduled messages of a topic come when they are due, and cancelled ones never")
    void schedule() {
        String topic = topic("a");
        ServiceBusSenderClient publisher = publisher(2, topic);
        ServiceBusReceiverClient a = subscriber(3, topic, "a");
        OffsetDateTime due = in(Duration.ofSeconds(2));
        List<Long> numbers = new ArrayList<>();
        publisher.scheduleMessages(numbered(2), due).forEach(numbers::add);
        publisher.cancelScheduledMessage(numbers.get(0));
        nothing(a);
        assertEquals("1", takeOne(a).getBody().toString());
        nothing(a);
    }

    @Test
    @DisplayName("a processor of a subscription")
    void processor() {
        String topic = topic("a");
        List<String> seen = new CopyOnWriteArrayList<>();
        List<Throwable> errors = new CopyOnWriteArrayList<>();
        ServiceBusProcessorClient processor = closing(member(2).processor()
            .topicName(topic)
            .subscriptionName("a")
            .maxConcurrentCalls(4)
            .processMessage(context -> seen.add(context.getMessage().getBody().toString()))
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient());
        processor.start();
        publisher(1, topic).sendMessages(numbered(50));
        eventually(Duration.ofSeconds(15), () -> assertEquals(50, seen.size()));
        assertEquals(List.of(), errors);
        nothing(subscriber(1, topic, "a"));
    }

    @Test
    @DisplayName("rules: made, listed, obeyed and removed over the connection")
    void rules() {
        String topic = topic("a");
        ServiceBusRuleManagerClient rules = rules(2, topic, "a");
        assertInstanceOf(TrueRuleFilter.class, listed(rules).get("$Default").getFilter());
        rules.deleteRule("$Default");
        assertEquals(Map.of(), listed(rules));
        rules.createRule("large", new CreateRuleOptions(new SqlRuleFilter("amount > 100 AND sys.Label <> 'test'")));
        rules.createRule("east", new CreateRuleOptions(new CorrelationRuleFilter().setLabel("east"))
            .setAction(new SqlRuleAction("SET checked = TRUE; REMOVE amount")));
        Map<String, RuleProperties> listed = listed(rules(3, topic, "a"));
        assertEquals(2, listed.size());
        SqlRuleFilter large = assertInstanceOf(SqlRuleFilter.class, listed.get("large").getFilter());
        assertEquals("amount > 100 AND sys.Label <> 'test'", large.getSqlExpression());
        CorrelationRuleFilter east = assertInstanceOf(CorrelationRuleFilter.class, listed.get("east").getFilter());
        assertEquals("east", east.getLabel());
        assertEquals("SET checked = TRUE; REMOVE amount",
            assertInstanceOf(SqlRuleAction.class, listed.get("east").getAction()).getSqlExpression());

        publisher(1, topic).sendMessages(List.of(order("small", "west", 5), order("big", "west", 500),
            order("test", "test", 500), order("eastern", "east", 7)));
        ServiceBusReceiverClient a = subscriber(1, topic, "a");
        List<ServiceBusReceivedMessage> got = take(a, 2);
        assertEquals(List.of("big", "eastern"), bodies(got));
        assertEquals(Map.of("amount", 500), got.get(0).getApplicationProperties());
        assertEquals(true, got.get(1).getApplicationProperties().get("checked"));
        assertEquals(null, got.get(1).getApplicationProperties().get("amount"));
        nothing(a);

        rules.deleteRule("large");
        publisher(3, topic).sendMessage(order("big again", "west", 500));
        nothing(a);
    }

    @Test
    @DisplayName("a rule is made once, with a filter that can be read, and removed once")
    void ruleRefused() {
        String topic = topic("a");
        ServiceBusRuleManagerClient rules = rules(1, topic, "a");
        rules.createRule("r", new CreateRuleOptions(new SqlRuleFilter("a = 1")));
        refused(MESSAGING_ENTITY_ALREADY_EXISTS, () -> rules.createRule("r", new CreateRuleOptions(new SqlRuleFilter("a = 2"))));
        assertThrows(RuntimeException.class, () -> rules.createRule("bad", new CreateRuleOptions(new SqlRuleFilter("a = = 1"))));
        rules.deleteRule("r");
        assertThrows(RuntimeException.class, () -> rules.deleteRule("r"));
        assertEquals(1, listed(rules).size());
    }

    @Test
    @DisplayName("nobody receives from a topic or sends to a subscription")
    void wrongEnds() {
        String topic = topic("a");
        assertThrows(RuntimeException.class, () -> bodies(receiver(1, topic).receiveMessages(1, Duration.ofSeconds(2))));
        assertThrows(RuntimeException.class, () -> sender(1, topic + "/Subscriptions/a").sendMessage(message("1")));
        refused(MESSAGING_ENTITY_NOT_FOUND, () -> subscriber(1, topic, "none").peekMessage());
        refused(MESSAGING_ENTITY_NOT_FOUND, () -> publisher(1, topic + "-none").sendMessage(message("1")));
    }
}
