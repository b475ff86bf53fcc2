//! Topics, subscriptions, rules and forwarding.

use azservicebus::administration::{CorrelationRuleFilter, RuleAction, RuleFilter, SqlRuleAction, SqlRuleFilter, TrueRuleFilter};
use azservicebus::{ServiceBusMessage, ServiceBusReceiver};
use fe2o3_amqp_types::messaging::ApplicationProperties;
use serde_amqp::primitives::OrderedMap;
use serde_json::json;

use crate::support::*;

async fn subscriber(client: &mut Client, topic: &str, subscription: &str) -> ServiceBusReceiver {
    client.create_receiver_for_subscription(topic, subscription, Default::default()).await.unwrap()
}

fn order(body: &str, subject: &str, amount: i32) -> ServiceBusMessage {
    let mut m = ServiceBusMessage::new(body);
    m.set_subject(subject.to_string());
    let mut properties = ApplicationProperties::default();
    properties.insert("amount".to_string(), amount.into());
    *m.application_properties_mut() = Some(properties);
    m
}

#[tokio::test(flavor = "multi_thread")]
async fn each_subscription_gets_each_message() {
    let name = topic(&["a", "b"]);
    let mut at = client(1).await;
    send_all(&mut at, &name, numbered(5)).await.unwrap();
    for (member, subscription) in [(2, "a"), (3, "b")] {
        let mut at = client(member).await;
        let mut receiver = subscriber(&mut at, &name, subscription).await;
        let got = take(&mut receiver, 5).await;
        assert_eq!(texts(&got), up_to(5));
        for m in &got {
            receiver.complete_message(m).await.unwrap();
        }
        nothing(&mut receiver).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_managed_over_amqp_and_select_and_change_messages() {
    let name = topic(&["a"]);
    let mut at = client(2).await;
    let mut rules = at.create_rule_manager(&name, "a").await.unwrap();
    rules.delete_rule("$Default").await.unwrap();
    rules.create_rule("large", SqlRuleFilter::new("amount > 100 AND sys.Label <> 'west'")).await.unwrap();
    let change = SqlRuleAction::new("SET checked = TRUE; REMOVE amount");
    rules.create_rule("east", (SqlRuleFilter::new("sys.Label = 'east'"), change)).await.unwrap();
    rules.create_rule("south", CorrelationRuleFilter::builder().subject("south").build()).await.unwrap();
    let mut properties = OrderedMap::new();
    properties.insert("amount".to_string(), serde_amqp::Value::Int(7));
    rules.create_rule("seven", CorrelationRuleFilter::builder().properties(properties).build()).await.unwrap();
    refused(rules.create_rule("large", TrueRuleFilter::new()).await, "StatusCode(409)");

    let listed = rules.get_rules().await.unwrap();
    assert_eq!(listed.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["east", "large", "seven", "south"]);
    match (&listed[0].filters, &listed[0].actions) {
        (RuleFilter::Sql(f), RuleAction::Sql(a)) => {
            assert_eq!(f.expression, "sys.Label = 'east'");
            assert_eq!(a.expression, "SET checked = TRUE; REMOVE amount");
        }
        other => panic!("{other:?}"),
    }
    match &listed[1].filters {
        RuleFilter::Sql(f) => assert_eq!(f.expression, "amount > 100 AND sys.Label <> 'west'"),
        other => panic!("{other:?}"),
    }
    match &listed[3].filters {
        RuleFilter::Correlation(f) => assert_eq!(f.subject.as_deref(), Some("south")),
        other => panic!("{other:?}"),
    }
    assert!(listed[1].created_at.is_some());

    let mut elsewhere = client(1).await;
    let mut sender = sender(&mut elsewhere, &name).await;
    for m in [order("none", "north", 1), order("large", "north", 101), order("west", "west", 500), order("seven", "west", 7), order("south", "south", 1)] {
        sender.send_message(m).await.unwrap();
    }
    let mut receiver = subscriber(&mut at, &name, "a").await;
    assert_eq!(texts(&take(&mut receiver, 3).await), ["large", "seven", "south"]);

    sender.send_message(order("east", "east", 1)).await.unwrap();
    let m = take_one(&mut receiver).await;
    let have = m.application_properties().unwrap();
    assert_eq!((have.get("checked"), have.get("amount")), (Some(&true.into()), None));
    nothing(&mut receiver).await;
    refused(rules.delete_rule("missing").await, "StatusCode(404)");
    rules.dispose().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_forwards_to_another() {
    let to = queue(json!({}));
    let from = queue(json!({"forwardTo": to}));
    let mut at = client(1).await;
    send_all(&mut at, &from, numbered(3)).await.unwrap();
    let mut elsewhere = client(3).await;
    let mut receiver = receiver(&mut elsewhere, &to).await;
    assert_eq!(texts(&take(&mut receiver, 3).await), up_to(3));
}
