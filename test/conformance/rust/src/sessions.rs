//! Sessions: by name and next, order, state, locks.

use azservicebus::{ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSessionReceiver};
use serde_json::{json, Value};
use std::time::{Duration, Instant};

use crate::support::*;

/// n messages of a session; their bodies name the session and the place in it.
fn of(session: &str, n: usize) -> Vec<ServiceBusMessage> {
    (0..n)
        .map(|i| {
            let mut m = ServiceBusMessage::new(format!("{session}{i}"));
            m.set_session_id(session.to_string()).unwrap();
            m
        })
        .collect()
}

async fn sessions(settings: Value) -> String {
    let mut all = settings;
    all["requiresSession"] = json!(true);
    let name = queue(all);
    let mut at = client(1).await;
    let mut sender = sender(&mut at, &name).await;
    for (session, n) in [("a", 3), ("b", 2)] {
        for m in of(session, n) {
            sender.send_message(m).await.unwrap();
        }
    }
    name
}

async fn accept(client: &mut Client, queue: &str, session: &str) -> Result<ServiceBusSessionReceiver, azure_core::Error> {
    client.accept_session_for_queue(queue, session, Default::default()).await
}

async fn next(client: &mut Client, queue: &str) -> Result<ServiceBusSessionReceiver, azure_core::Error> {
    client.accept_next_session_for_queue(queue, Default::default()).await
}

async fn take_session(receiver: &mut ServiceBusSessionReceiver, n: usize) -> Vec<ServiceBusReceivedMessage> {
    let mut got = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    while got.len() < n && Instant::now() < deadline {
        let more = (n - got.len()) as u32;
        got.extend(receiver.receive_messages_with_max_wait_time(more, Duration::from_secs(5)).await.unwrap());
    }
    assert_eq!(got.len(), n, "received {:?}", texts(&got));
    got
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_session_has_one_holder_who_gets_its_messages_in_order() {
    let name = sessions(json!({})).await;
    let mut at = client(2).await;
    let mut b = accept(&mut at, &name, "b").await.unwrap();
    assert_eq!(b.session_id(), "b");
    refused(accept(&mut client(3).await, &name, "b").await.map(|_| ()), "session-cannot-be-locked");
    let got = take_session(&mut b, 2).await;
    assert_eq!(texts(&got), ["b0", "b1"]);
    assert_eq!(got[0].session_id(), Some("b"));
    b.abandon_message(&got[0], None).await.unwrap();
    b.complete_message(&got[1]).await.unwrap();
    let again = take_session(&mut b, 1).await;
    assert_eq!((text(&again[0]).as_str(), again[0].delivery_count()), ("b0", Some(2)));
    b.complete_message(&again[0]).await.unwrap();
    assert!(b.receive_messages_with_max_wait_time(1, Duration::from_secs(1)).await.unwrap().is_empty());
    counts_become(&name, json!({"active": 3, "locked": 0})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_session_is_one_that_nobody_holds() {
    let name = sessions(json!({})).await;
    let (mut one, mut other) = (client(1).await, client(3).await);
    let mut first = next(&mut one, &name).await.unwrap();
    let second = next(&mut other, &name).await.unwrap();
    assert_eq!((first.session_id(), second.session_id()), ("a", "b"));
    for m in take_session(&mut first, 3).await {
        first.complete_message(&m).await.unwrap();
    }
    second.dispose().await.unwrap();
    let mut again = next(&mut client(2).await, &name).await.unwrap();
    assert_eq!(again.session_id(), "b");
    assert_eq!(texts(&take_session(&mut again, 2).await), ["b0", "b1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_stays_with_the_session() {
    let name = sessions(json!({})).await;
    let mut at = client(1).await;
    let mut a = accept(&mut at, &name, "a").await.unwrap();
    assert_eq!(peeked(&a.peek_messages(10, Some(1)).await.unwrap()), ["a0", "a1", "a2"]);
    a.set_session_state(b"half done".to_vec()).await.unwrap();
    for m in take_session(&mut a, 3).await {
        a.complete_message(&m).await.unwrap();
    }
    a.dispose().await.unwrap();
    let mut elsewhere = client(3).await;
    let mut a = accept(&mut elsewhere, &name, "a").await.unwrap();
    assert_eq!(a.session_state().await.unwrap(), b"half done");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_session_is_renewed_and_lost_as_a_whole() {
    let name = sessions(json!({"lockDuration": "9s"})).await;
    let mut at = client(2).await;
    let mut a = accept(&mut at, &name, "a").await.unwrap();
    let got = take_session(&mut a, 2).await;
    let original = a.session_locked_until();
    until(original - time::Duration::seconds(5)).await;
    a.renew_session_lock().await.unwrap();
    let renewed = a.session_locked_until();
    assert!(renewed > original);
    until(original + time::Duration::seconds(1)).await;
    a.complete_message(&got[0]).await.unwrap();
    until(renewed + time::Duration::milliseconds(500)).await;
    refused(a.set_session_state(b"late".to_vec()).await, "StatusCode(410)");
    let mut elsewhere = client(1).await;
    let mut other = accept(&mut elsewhere, &name, "a").await.unwrap();
    assert_eq!(texts(&take_session(&mut other, 1).await), ["a1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_session_in_vain_ends_on_time() {
    let name = queue(json!({"requiresSession": true}));
    let options = retrying(0, Duration::from_secs(4));
    let mut at = client_with(host(2), &key_name(), &key(), options).await.unwrap();
    let began = Instant::now();
    let result = tokio::time::timeout(Duration::from_secs(90), next(&mut at, &name)).await.expect("no answer");
    refused(result.map(|_| ()), "timeout");
    assert!(began.elapsed() < Duration::from_secs(70)); // the crate does not tell its time-out to the broker, which waits a minute
}
