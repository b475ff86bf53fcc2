package peeklock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.exception.ClientAuthenticationException;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpPipelineNextSyncPolicy;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.FixedDelayOptions;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.http.policy.RetryOptions;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.AuthorizationRule;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.net.MalformedURLException;
import java.net.URI;
import java.net.URISyntaxException;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;

/**
 * The administration client. It only ever asks over https and without the port of the
 * connection string; as for the emulator, a policy sends the request where it is to go.
 */
class AdminTest extends Scenario {
    record Elsewhere(URI admin) implements HttpPipelinePolicy {
        @Override
        public Mono<HttpResponse> process(HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
            redirect(context);
            return next.process();
        }

        @Override
        public HttpResponse processSync(HttpPipelineCallContext context, HttpPipelineNextSyncPolicy next) {
            redirect(context);
            return next.processSync();
        }

        private void redirect(HttpPipelineCallContext context) {
            try {
                URI asked = context.getHttpRequest().getUrl().toURI();
                String rest = asked.getRawPath() + (asked.getRawQuery() == null ? "" : "?" + asked.getRawQuery());
                context.getHttpRequest().setUrl(URI.create(admin.getScheme() + "://" + admin.getAuthority() + rest).toURL());
            } catch (URISyntaxException | MalformedURLException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private static ServiceBusAdministrationClient admin(int member, String key) {
        String address = System.getenv("PEEKLOCK_ADMIN_" + member);
        URI admin = URI.create(address == null ? "http://127.0.0.1:" + (5290 + 10 * member) : address);
        return new ServiceBusAdministrationClientBuilder()
            .connectionString("Endpoint=sb://" + admin.getHost() + "/;SharedAccessKeyName=" + part(member, "SharedAccessKeyName")
                + ";SharedAccessKey=" + key)
            .retryOptions(new RetryOptions(new FixedDelayOptions(0, Duration.ofMillis(1))))
            .addPolicy(new Elsewhere(admin))
            .buildClient();
    }

    private static ServiceBusAdministrationClient admin(int member) {
        return admin(member, part(member, "SharedAccessKey"));
    }

    private static String fresh() {
        return "java-" + UUID.randomUUID();
    }

    @Test
    @DisplayName("queues are made, shown, changed and deleted")
    void queues() {
        String name = fresh();
        QueueProperties made = admin(1).createQueue(name);
        assertEquals(name, made.getName());
        assertThrows(ResourceExistsException.class, () -> admin(2).createQueue(name));
        QueueProperties got = admin(2).getQueue(name);
        assertEquals(Duration.ofMinutes(1), got.getLockDuration());
        assertEquals(10, got.getMaxDeliveryCount());
        assertTrue(got.getDefaultMessageTimeToLive().toDays() > 100_000);
        got.setLockDuration(Duration.ofSeconds(150)).setMaxDeliveryCount(3).setUserMetadata("a <b> & \"c\"").setStatus(EntityStatus.RECEIVE_DISABLED);
        admin(3).updateQueue(got);
        QueueProperties again = admin(1).getQueue(name);
        assertEquals(Duration.ofSeconds(150), again.getLockDuration());
        assertEquals(3, again.getMaxDeliveryCount());
        assertEquals("a <b> & \"c\"", again.getUserMetadata());
        assertEquals(EntityStatus.RECEIVE_DISABLED, again.getStatus());
        assertTrue(again.getDefaultMessageTimeToLive().toDays() > 100_000);
        assertTrue(admin(2).getQueueExists(name));
        admin(2).deleteQueue(name);
        assertFalse(admin(3).getQueueExists(name));
        assertThrows(ResourceNotFoundException.class, () -> admin(1).getQueue(name));
        assertThrows(ResourceNotFoundException.class, () -> admin(1).deleteQueue(name));
    }

    @Test
    @DisplayName("access rules come back and stay")
    void accessRules() {
        String name = fresh();
        CreateQueueOptions options = new CreateQueueOptions();
        options.getAuthorizationRules().add(new SharedAccessAuthorizationRule("app", "first-key-of-the-app", "second-key-of-the-app", List.of(AccessRights.SEND)));
        options.getAuthorizationRules().add(
            new SharedAccessAuthorizationRule("owner", List.of(AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN)));
        admin(1).createQueue(name, options);
        QueueProperties got = admin(2).getQueue(name);
        assertEquals(List.of("app", "owner"), got.getAuthorizationRules().stream().map(AuthorizationRule::getKeyName).sorted().collect(Collectors.toList()));
        AuthorizationRule app = got.getAuthorizationRules().stream().filter(rule -> rule.getKeyName().equals("app")).findFirst().orElseThrow();
        assertEquals(List.of(AccessRights.SEND), app.getAccessRights());
        assertEquals("first-key-of-the-app", app.getPrimaryKey());
        assertEquals("second-key-of-the-app", app.getSecondaryKey());
        List<String> keys = got.getAuthorizationRules().stream().map(AuthorizationRule::getPrimaryKey).sorted().collect(Collectors.toList());
        admin(3).updateQueue(got.setMaxDeliveryCount(3));
        assertEquals(keys, admin(1).getQueue(name).getAuthorizationRules().stream().map(AuthorizationRule::getPrimaryKey).sorted().collect(Collectors.toList()));
        got.getAuthorizationRules().clear();
        admin(2).updateQueue(got);
        assertTrue(admin(3).getQueue(name).getAuthorizationRules().isEmpty());
    }

    @Test
    @DisplayName("what cannot be is refused, and so is a wrong key")
    void refused() {
        HttpResponseException bad = assertThrows(HttpResponseException.class,
            () -> admin(1).createQueue(fresh(), new CreateQueueOptions().setLockDuration(Duration.ofMinutes(6))));
        assertEquals(400, bad.getResponse().getStatusCode());
        assertThrows(ClientAuthenticationException.class, () -> admin(2, "another key").getNamespaceProperties());
        assertEquals("Standard", admin(2).getNamespaceProperties().getMessagingSku().toString());
    }

    @Test
    @DisplayName("topics and subscriptions are made, shown, changed and deleted")
    void topics() {
        String name = fresh();
        admin(1).createTopic(name, new CreateTopicOptions().setDuplicateDetectionRequired(true).setMaxSizeInMegabytes(2048));
        TopicProperties topic = admin(2).getTopic(name);
        assertTrue(topic.isDuplicateDetectionRequired());
        assertEquals(2048, topic.getMaxSizeInMegabytes());
        assertEquals(EntityStatus.SEND_DISABLED, admin(3).updateTopic(topic.setStatus(EntityStatus.SEND_DISABLED)).getStatus());
        admin(1).createSubscription(name, "sub", new CreateSubscriptionOptions().setSessionRequired(true).setMaxDeliveryCount(7));
        SubscriptionProperties sub = admin(2).getSubscription(name, "sub");
        assertTrue(sub.isSessionRequired());
        assertEquals(7, sub.getMaxDeliveryCount());
        admin(3).updateSubscription(sub.setLockDuration(Duration.ofSeconds(5)));
        assertEquals(Duration.ofSeconds(5), admin(1).getSubscription(name, "sub").getLockDuration());
        assertThrows(ResourceExistsException.class, () -> admin(1).createSubscription(name, "sub"));
        admin(2).deleteSubscription(name, "sub");
        assertFalse(admin(3).getSubscriptionExists(name, "sub"));
        admin(3).deleteTopic(name);
        assertFalse(admin(1).getTopicExists(name));
    }

    @Test
    @DisplayName("rules come back as they were written")
    void rules() {
        String name = fresh();
        admin(1).createTopic(name);
        admin(1).createSubscription(name, "sub");
        assertInstanceOf(TrueRuleFilter.class, admin(2).getRule(name, "sub", "$Default").getFilter());
        SqlRuleFilter sql = new SqlRuleFilter("color = @color AND size > @size");
        Map<String, Object> values = Map.of("@color", "<red> & \"blue\"", "@size", -7, "@late", true, "@weight", 2.5, "@far", 1L << 40);
        sql.getParameters().putAll(values);
        SqlRuleAction action = new SqlRuleAction("SET color = @color");
        action.getParameters().put("@color", "green");
        admin(1).createRule(name, "sql", "sub", new CreateRuleOptions(sql).setAction(action));
        RuleProperties got = admin(2).getRule(name, "sub", "sql");
        SqlRuleFilter filter = assertInstanceOf(SqlRuleFilter.class, got.getFilter());
        assertEquals(sql.getSqlExpression(), filter.getSqlExpression());
        // This client sends every value as a text, whatever it is.
        values.forEach((key, value) -> assertEquals(value.toString(), filter.getParameters().get(key), key));
        SqlRuleAction done = assertInstanceOf(SqlRuleAction.class, got.getAction());
        assertEquals(action.getSqlExpression(), done.getSqlExpression());
        assertEquals(action.getParameters(), done.getParameters());
        CorrelationRuleFilter same = new CorrelationRuleFilter().setLabel("order").setTo("there");
        same.getProperties().put("color", "red");
        admin(3).createRule(name, "same", "sub", new CreateRuleOptions(same));
        got = admin(1).getRule(name, "sub", "same");
        CorrelationRuleFilter found = assertInstanceOf(CorrelationRuleFilter.class, got.getFilter());
        assertEquals(List.of("order", "there"), List.of(found.getLabel(), found.getTo()));
        assertEquals(same.getProperties(), found.getProperties());
        admin(2).updateRule(name, "sub", got.setFilter(new SqlRuleFilter("1=0")));
        assertEquals("1=0", ((SqlRuleFilter) admin(3).getRule(name, "sub", "same").getFilter()).getSqlExpression());
        assertThrows(ResourceExistsException.class, () -> admin(1).createRule(name, "sql", "sub", new CreateRuleOptions(sql)));
        admin(2).deleteRule(name, "sub", "$Default");
        List<String> names = new ArrayList<>();
        admin(3).listRules(name, "sub").forEach(rule -> names.add(rule.getName()));
        assertEquals(List.of("same", "sql"), names);
    }

    @Test
    @DisplayName("lists are followed over their pages")
    void lists() {
        String name = fresh();
        admin(1).createTopic(name);
        List<String> want = new ArrayList<>();
        for (int i = 0; i < 103; i++) { // more than this client asks for at once
            want.add(String.format("sub-%03d", i));
            admin(1).createSubscription(name, want.get(i));
        }
        assertEquals(want, admin(2).listSubscriptions(name).stream().map(SubscriptionProperties::getSubscriptionName).collect(Collectors.toList()));
        assertTrue(admin(3).listTopics().stream().anyMatch(topic -> topic.getName().equals(name)));
        assertFalse(admin(3).listQueues().stream().anyMatch(queue -> queue.getName().equals(name)));
    }

    @Test
    @DisplayName("runtime properties count what there is, and a queue forwards to where the client says")
    void runtime() {
        String to = fresh();
        String from = fresh();
        admin(1).createQueue(to);
        admin(1).createQueue(from, new CreateQueueOptions().setForwardTo(to));
        assertTrue(admin(2).getQueue(from).getForwardTo().endsWith(to));
        sender(1, from).sendMessage(new ServiceBusMessage("on"));
        sender(2, to).sendMessage(new ServiceBusMessage("there"));
        sender(2, to).scheduleMessage(new ServiceBusMessage("later"), OffsetDateTime.now().plusHours(1));
        eventually(Duration.ofSeconds(10), () -> {
            QueueRuntimeProperties p = admin(3).getQueueRuntimeProperties(to);
            assertEquals(List.of(3L, 2, 1), List.of(p.getTotalMessageCount(), p.getActiveMessageCount(), p.getScheduledMessageCount()));
            assertTrue(p.getSizeInBytes() > 0 && p.getCreatedAt().isAfter(OffsetDateTime.now().minusMinutes(1)));
        });
    }
}
