//! Peeking.

use serde_json::json;

use azservicebus::ServiceBusMessageState;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn peek_shows_active_locked_and_deferred_messages_and_changes_none() {
    let name = filled(3, json!({})).await;
    let mut at = client(2).await;
    let mut receiver = receiver(&mut at, &name).await;
    let got = take(&mut receiver, 2).await;
    receiver.defer_message(&got[1], None).await.unwrap();
    let mut elsewhere = client(3).await;
    let mut other = crate::support::receiver(&mut elsewhere, &name).await;
    let seen = other.peek_messages(10, Some(1)).await.unwrap();
    assert_eq!(peeked(&seen), up_to(3));
    assert_eq!(seen[1].state(), ServiceBusMessageState::Deferred);
    assert_eq!(seen[0].state(), ServiceBusMessageState::Active);
    assert_eq!(peeked(&other.peek_messages(10, Some(seen[1].sequence_number())).await.unwrap()), up_to(3)[1..]);
    counts_become(&name, json!({"active": 2, "locked": 1, "deferred": 1})).await;
}
