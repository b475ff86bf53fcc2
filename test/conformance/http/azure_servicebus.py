"""Scenarios through azure-servicebus 0.21, the retired client of Python that sends and receives over HTTP only."""

import os
import unittest

from azure.common import AzureHttpError
from azure.servicebus import Message, Rule, ServiceBusService, Subscription

NAMESPACE = os.environ["PEEKLOCK_NAMESPACE"]


def connect(key="SAS_KEY_VALUE"):
    return ServiceBusService(NAMESPACE, shared_access_key_name="RootManageSharedAccessKey", shared_access_key_value=key)


class Scenarios(unittest.TestCase):
    def setUp(self):
        self.bus = connect()

    def refused(self, status, call, *args):
        with self.assertRaises(AzureHttpError) as refused:
            call(*args)
        self.assertEqual(status, refused.exception.status_code)

    def test_a_message_arrives_with_its_properties(self):
        self.bus.create_queue("py-send")
        properties = {"Priority": "high", "size": 7, "ratio": 0.5, "good": True}
        self.bus.send_queue_message("py-send", Message(b"one coffee", custom_properties=properties, broker_properties={"Label": "subject"}))
        got = self.bus.receive_queue_message("py-send", peek_lock=False, timeout=1)
        self.assertEqual(b"one coffee", got.body)
        self.assertEqual("subject", got.broker_properties["Label"])
        self.assertEqual({name.lower(): value for name, value in properties.items()}, {name: got.custom_properties.get(name) for name in ("priority", "size", "ratio", "good")})
        self.assertIsNone(self.bus.receive_queue_message("py-send", peek_lock=False, timeout=1).body)

    def test_a_batch_is_sent(self):
        self.bus.create_queue("py-batch")
        self.bus.send_queue_message_batch("py-batch", [Message(str(i), custom_properties={"i": i}) for i in range(3)])
        got = [self.bus.receive_queue_message("py-batch", peek_lock=False, timeout=5) for _ in range(3)]
        # In a batch this client writes numbers as strings.
        self.assertEqual([(b"0", "0"), (b"1", "1"), (b"2", "2")], [(m.body, m.custom_properties["i"]) for m in got])

    def test_a_locked_message_is_unlocked_renewed_and_deleted(self):
        self.bus.create_queue("py-lock")
        self.bus.send_queue_message("py-lock", Message(b"x"))
        first = self.bus.receive_queue_message("py-lock", timeout=5)
        self.assertEqual(1, first.broker_properties["DeliveryCount"])
        first.unlock()
        second = self.bus.receive_queue_message("py-lock", timeout=5)
        self.assertEqual(2, second.broker_properties["DeliveryCount"])
        second.renew_lock()
        second.delete()
        self.refused(404, second.delete)

    def test_a_rule_selects_what_a_subscription_gets(self):
        self.bus.create_topic("py-events")
        self.bus.create_subscription("py-events", "eu", Subscription(max_delivery_count="1"))
        self.bus.create_rule("py-events", "eu", "r", Rule(filter_type="SqlFilter", filter_expression="region = 'eu'"))
        self.bus.delete_rule("py-events", "eu", "$Default")
        for region in ("us", "eu"):
            self.bus.send_topic_message("py-events", Message(region.encode(), custom_properties={"region": region}))
        got = self.bus.receive_subscription_message("py-events", "eu", timeout=5)
        self.assertEqual(b"eu", got.body)
        got.unlock()
        dead = self.bus.format_dead_letter_subscription_name("eu")
        self.assertEqual(b"eu", self.bus.receive_subscription_message("py-events", dead, peek_lock=False, timeout=5).body)

    def test_a_wrong_key_and_a_missing_queue_are_refused(self):
        self.bus.create_queue("py-refuse")
        self.refused(401, connect("wrong").send_queue_message, "py-refuse", Message(b"x"))
        with self.assertRaises(AzureHttpError):
            self.bus.send_queue_message("nowhere", Message(b"x"))


if __name__ == "__main__":
    unittest.main()
