//! Settling in each way, in time and too late, and locks.

use azservicebus::receiver::DeadLetterOptions;
use serde_amqp::primitives::{OrderedMap, Timestamp};
use serde_amqp::Value;
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn complete_removes_the_message_and_only_that_one() {
    let name = filled(3, json!({})).await;
    let mut at = client(2).await;
    let mut receiver = receiver(&mut at, &name).await;
    let got = take(&mut receiver, 3).await;
    receiver.complete_message(&got[1]).await.unwrap();
    counts_become(&name, json!({"active": 2, "locked": 2})).await;
    receiver.complete_message(&got[0]).await.unwrap();
    receiver.complete_message(&got[2]).await.unwrap();
    counts_become(&name, json!({"active": 0, "locked": 0, "deadLetter": 0})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn abandon_unlocks_at_once_and_counts() {
    let name = filled(1, json!({"maxDeliveryCount": 3})).await;
    let mut at = client(3).await;
    let mut receiver = receiver(&mut at, &name).await;
    let mut before = None;
    for attempt in 1..=3 {
        let m = take_one(&mut receiver).await;
        assert_eq!((text(&m).as_str(), m.delivery_count()), ("0", Some(attempt)));
        assert_ne!(Some(m.lock_token().clone()), before);
        before = Some(m.lock_token().clone());
        receiver.abandon_message(&m, None).await.unwrap();
    }
    nothing(&mut receiver).await;
    let dead = take_one(&mut dead_letters(&mut at, &name).await).await;
    assert_eq!(dead.dead_letter_reason(), Some("MaxDeliveryCountExceeded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn abandon_with_a_delivery_time_delays_the_message() {
    let name = filled(1, json!({})).await;
    let mut at = client(2).await;
    let mut receiver = receiver(&mut at, &name).await;
    let m = take_one(&mut receiver).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let due = (now + Duration::from_secs(2)).as_millis() as i64;
    let mut changed = OrderedMap::new();
    changed.insert("x-opt-delivery-time".to_string(), Value::Timestamp(Timestamp::from_milliseconds(due)));
    receiver.abandon_message(&m, Some(changed)).await.unwrap();
    let again = take_one(&mut receiver).await;
    assert!(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64 >= due);
    assert_eq!(again.delivery_count(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn defer_and_receive_by_sequence_number_at_any_member() {
    let name = filled(3, json!({})).await;
    let mut at = client(2).await;
    let mut receiver = receiver(&mut at, &name).await;
    let got = take(&mut receiver, 3).await;
    let (first, last) = (got[0].sequence_number(), got[2].sequence_number());
    receiver.defer_message(&got[0], None).await.unwrap();
    receiver.defer_message(&got[2], None).await.unwrap();
    receiver.complete_message(&got[1]).await.unwrap();
    counts_become(&name, json!({"active": 0, "deferred": 2})).await;
    nothing(&mut receiver).await;

    let mut elsewhere = client(3).await;
    let mut other = crate::support::receiver(&mut elsewhere, &name).await;
    let got = other.receive_deferred_messages([first, last]).await.unwrap();
    assert_eq!(texts(&got), ["0", "2"]);
    other.complete_message(&got[0]).await.unwrap();
    let stale = DeadLetterOptions {
        dead_letter_reason: Some("stale".to_string()),
        dead_letter_error_description: Some("deferred too long".to_string()),
        ..Default::default()
    };
    other.dead_letter_message(&got[1], stale).await.unwrap();
    counts_become(&name, json!({"active": 0, "deferred": 0, "deadLetter": 1})).await;
    refused(other.receive_deferred_message(first).await.map(|_| ()), "StatusCode(404)");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_with_reason_and_description() {
    let name = filled(1, json!({})).await;
    let mut at = client(2).await;
    let mut receiver = receiver(&mut at, &name).await;
    let m = take_one(&mut receiver).await;
    let why = DeadLetterOptions {
        dead_letter_reason: Some("cannot parse".to_string()),
        dead_letter_error_description: Some("unexpected token".to_string()),
        ..Default::default()
    };
    receiver.dead_letter_message(&m, why).await.unwrap();
    counts_become(&name, json!({"active": 0, "locked": 0, "deadLetter": 1})).await;
    nothing(&mut receiver).await;
    let mut other = client(3).await;
    let mut dead = dead_letters(&mut other, &name).await;
    let m = take_one(&mut dead).await;
    assert_eq!(m.dead_letter_reason(), Some("cannot parse"));
    assert_eq!(m.dead_letter_error_description(), Some("unexpected token"));
    assert_eq!(m.message_id().as_deref(), Some("m-0"));
    dead.complete_message(&m).await.unwrap();
    counts_become(&name, json!({"deadLetter": 0})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_lock_outlives_its_end_and_is_lost_without_renewal() {
    let name = filled(1, json!({"lockDuration": "8s"})).await;
    let mut at = client(2).await;
    let mut receiver = receiver(&mut at, &name).await;
    let mut m = take_one(&mut receiver).await;
    let original = m.locked_until().unwrap();
    until(original - time::Duration::seconds(4)).await;
    receiver.renew_message_lock(&mut m).await.unwrap();
    let renewed = m.locked_until().unwrap();
    assert!(renewed > original && renewed - now() > time::Duration::seconds(5), "{original} {renewed}");
    until(original + time::Duration::milliseconds(500)).await;
    counts_become(&name, json!({"locked": 1})).await;
    until(renewed + time::Duration::milliseconds(1500)).await;
    refused(receiver.renew_message_lock(&mut m).await, "StatusCode(410)");
    let again = take_one(&mut receiver).await;
    assert_eq!(again.delivery_count(), Some(2));
    receiver.complete_message(&again).await.unwrap();
    counts_become(&name, json!({"active": 0, "locked": 0})).await;
}

/// Prefetched messages are handed out in order, and settled like others.
#[tokio::test(flavor = "multi_thread")]
async fn prefetched_messages_are_settled() {
    let name = filled(30, json!({})).await;
    let mut at = client(1).await;
    let options = azservicebus::ServiceBusReceiverOptions { prefetch_count: 10, ..Default::default() };
    let mut receiver = at.create_receiver_for_queue(&name, options).await.unwrap();
    for i in 0..30 {
        let m = receiver.receive_message_with_max_wait_time(Duration::from_secs(20)).await.unwrap().unwrap();
        assert_eq!(text(&m), i.to_string());
        receiver.complete_message(&m).await.unwrap();
    }
    counts_become(&name, json!({"active": 0, "locked": 0})).await;
}
