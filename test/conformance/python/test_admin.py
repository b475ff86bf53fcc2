"""The administration client. It only ever asks over https; as for the emulator, a transport
sends the request over http instead. It is the one that blocks also beside clients of asyncio:
the other wants a further library for HTTP."""

import asyncio
import datetime
import os
import urllib.parse
import uuid

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from support import Awaited, bodies, now, numbered, part, take, take_one, topic

MINUTE = datetime.timedelta(minutes=1)
NEVER = datetime.timedelta(days=10675199, seconds=10085, microseconds=477581)


class Plain(RequestsTransport):
    def send(self, request, **options):
        request.url = request.url.replace("https:", "http:", 1)
        return super().send(request, **options)


def admin(member=1, key=None, **options):
    """An administration client of a member."""
    host = urllib.parse.urlsplit(os.environ.get(f"PEEKLOCK_ADMIN_{member}", f"http://127.0.0.1:{5290 + 10 * member}")).netloc
    connection = f"Endpoint=sb://{host}/;SharedAccessKeyName={part('SharedAccessKeyName')};SharedAccessKey={key or part('SharedAccessKey')}"
    return Awaited(ServiceBusAdministrationClient.from_connection_string(connection, transport=Plain(), retry_total=0, **options))


async def everything(made, method, *args):
    """A list over all its pages."""
    return await asyncio.to_thread(lambda: list(getattr(made.blocking, method)(*args)))


def fresh():
    return f"python-{uuid.uuid4()}"


async def test_queues_are_made_shown_changed_and_deleted(clients):
    name = fresh()
    a, b, c = (admin(member) for member in (1, 2, 3))
    await a.create_queue(name)
    with pytest.raises(ResourceExistsError):
        await b.create_queue(name)
    got = await b.get_queue(name)
    assert (got.name, got.lock_duration, got.max_delivery_count, got.status) == (name, MINUTE, 10, "Active")
    assert got.default_message_time_to_live == NEVER and got.auto_delete_on_idle == NEVER
    got.lock_duration, got.max_delivery_count, got.user_metadata = datetime.timedelta(seconds=150), 3, 'a <b> & "c"'
    await c.update_queue(got)
    again = await a.get_queue(name)
    assert dict(again) == dict(got)
    await b.delete_queue(name)
    with pytest.raises(ResourceNotFoundError):
        await a.get_queue(name)
    with pytest.raises(ResourceNotFoundError):
        await c.delete_queue(name)
    with pytest.raises(HttpResponseError) as caught:
        await c.create_queue(name, lock_duration="PT6M")
    assert caught.value.status_code == 400 and "LockDuration is PT1S to PT5M" in str(caught.value)


async def test_access_rules_come_back_and_stay(clients):
    name = fresh()
    a, b, c = (admin(member) for member in (1, 2, 3))
    rules = [
        AuthorizationRule(type="SharedAccessAuthorizationRule", rights=[AccessRights.SEND], key_name="app", primary_key="first-key-of-the-app", secondary_key="second-key-of-the-app"),
        AuthorizationRule(type="SharedAccessAuthorizationRule", rights=[AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN], key_name="owner"),
    ]
    await a.create_queue(name, authorization_rules=rules)
    got = await b.get_queue(name)
    shown = {r.key_name: ([AccessRights(right) for right in r.rights], r.primary_key, r.secondary_key) for r in got.authorization_rules}
    assert shown["app"] == ([AccessRights.SEND], "first-key-of-the-app", "second-key-of-the-app")
    assert shown["owner"][0] == rules[1].rights and len(shown["owner"][1]) == len(shown["owner"][2]) == 44
    got.lock_duration = MINUTE / 2
    await c.update_queue(got)  # with the rules that it read
    again = await a.get_queue(name)
    assert {r.key_name: r.primary_key for r in again.authorization_rules} == {key: rule[1] for key, rule in shown.items()}
    again.authorization_rules = []
    await b.update_queue(again)
    assert not (await c.get_queue(name)).authorization_rules


async def test_either_version_of_the_api_is_spoken(clients):
    name = fresh()
    old = admin(api_version=ApiVersion.V2017_04)
    await old.create_queue(name, lock_duration="PT5S")
    assert (await old.get_queue(name)).lock_duration == datetime.timedelta(seconds=5)


async def test_topics_subscriptions_and_their_rules(clients):
    name = fresh()
    a, b, c = (admin(member) for member in (1, 2, 3))
    await a.create_topic(name, requires_duplicate_detection=True, max_size_in_megabytes=2048, enable_express=True)
    got = await b.get_topic(name)
    assert (got.requires_duplicate_detection, got.max_size_in_megabytes, got.support_ordering) == (True, 2048, True)
    assert got.enable_express
    got.status, got.enable_express = "SendDisabled", False
    await c.update_topic(got)
    changed = await a.get_topic(name)
    assert (changed.status, changed.enable_express) == ("SendDisabled", False)
    await a.create_subscription(name, "sub", requires_session=True, max_delivery_count=7)
    sub = await b.get_subscription(name, "sub")
    assert (sub.name, sub.requires_session, sub.max_delivery_count) == ("sub", True, 7)
    sub.lock_duration = MINUTE / 2
    await c.update_subscription(name, sub)
    assert (await a.get_subscription(name, "sub")).lock_duration == MINUTE / 2
    assert [(r.name, type(r.filter)) for r in await everything(b, "list_rules", name, "sub")] == [("$Default", TrueRuleFilter)]

    noon = datetime.datetime(2026, 11, 20, 12, 0)  # this client sends whole seconds
    sql = SqlRuleFilter("color = @color AND size > @size", {"@color": '<red> & "blue"', "@size": -7, "@late": True, "@weight": 2.5, "@at": noon})
    action = SqlRuleAction("SET color = @color", {"@color": "green"})
    await a.create_rule(name, "sub", "sql", filter=sql, action=action)
    rule = await b.get_rule(name, "sub", "sql")
    assert rule.filter.sql_expression == sql.sql_expression
    assert {key: value for key, value in rule.filter.parameters.items() if key != "@at"} == {
        key: value for key, value in sql.parameters.items() if key != "@at"
    }
    assert rule.filter.parameters["@at"].replace(tzinfo=None) == noon
    assert (rule.action.sql_expression, rule.action.parameters) == (action.sql_expression, action.parameters)
    await c.create_rule(name, "sub", "same", filter=CorrelationRuleFilter(label="order", properties={"color": "red", "count": 3}))
    rule = await a.get_rule(name, "sub", "same")
    assert (rule.filter.label, rule.filter.properties) == ("order", {"color": "red", "count": 3})
    rule.filter = SqlRuleFilter("1=0")
    await b.update_rule(name, "sub", rule)
    assert (await c.get_rule(name, "sub", "same")).filter.sql_expression == "1=0"
    with pytest.raises(HttpResponseError) as caught:
        await a.create_rule(name, "sub", "bad", filter=SqlRuleFilter("color ="))
    assert caught.value.status_code == 400
    await a.delete_rule(name, "sub", "$Default")
    assert [r.name for r in await everything(b, "list_rules", name, "sub")] == ["same", "sql"]  # by name
    await c.delete_topic(name)
    with pytest.raises(ResourceNotFoundError):
        await a.get_subscription(name, "sub")


async def test_lists_are_followed_over_their_pages(clients):
    name = await topic()
    a = admin()
    want = [f"sub-{i}" for i in range(103)]  # more than this client asks for at once
    for sub in want:
        await a.create_subscription(name, sub)
    got = [s.name for s in await everything(a, "list_subscriptions", name)]
    assert sorted(got) == sorted(want) and len(got) == len(set(got))
    assert name in [t.name for t in await everything(admin(2), "list_topics")]
    assert name not in [q.name for q in await everything(admin(3), "list_queues")]


async def test_runtime_properties_count_what_there_is(clients):
    name = await clients.filled(4)
    receiver = clients.receiver(name)
    await receiver.dead_letter_message(await take_one(receiver), reason="why")
    for member in (1, 2, 3):
        p = await admin(member).get_queue_runtime_properties(name)
        assert (p.total_message_count, p.active_message_count, p.dead_letter_message_count) == (4, 3, 1)
        assert p.size_in_bytes > 0 and now() - p.created_at_utc < MINUTE
    on = await topic("sub")
    await clients.publisher(on).send_messages(numbered(2))
    assert (await admin(2).get_topic_runtime_properties(on)).subscription_count == 1
    assert (await admin(3).get_subscription_runtime_properties(on, "sub")).active_message_count == 2


async def test_a_queue_forwards_to_where_the_client_says(clients):
    to, source = fresh(), fresh()
    a = admin()
    await a.create_queue(to)
    await a.create_queue(source, forward_to=to, forward_dead_lettered_messages_to=to)
    assert (await admin(2).get_queue(source)).forward_to.endswith(to)
    await clients.sender(source).send_messages(numbered(1))
    assert bodies(await take(clients.receiver(to, 3), 1)) == ["0"]


async def test_the_namespace_is_shown_and_a_wrong_key_shows_nothing(clients):
    assert (await admin().get_namespace_properties()).messaging_sku == "Standard"
    with pytest.raises(ClientAuthenticationError):
        await admin(2, key="another key").get_namespace_properties()
