//! Scheduled messages and duplicates.

use azservicebus::ServiceBusMessage;
use serde_json::json;
use time::Duration;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_messages_arrive_at_their_time() {
    let name = queue(json!({}));
    let (mut a, mut b) = (client(2).await, client(3).await);
    let (mut sender, mut receiver) = (sender(&mut a, &name).await, receiver(&mut b, &name).await);
    let due = now() + Duration::seconds(4);
    let numbers = sender.schedule_messages(numbered(2), due).await.unwrap();
    assert_eq!(numbers.len(), 2);
    let mut later = message("2", "m-2");
    later.set_scheduled_enqueue_time(due);
    sender.send_message(later).await.unwrap();
    let seen = receiver.peek_messages(10, Some(1)).await.unwrap();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0].sequence_number(), numbers[0]);
    nothing(&mut receiver).await;
    let mut got = texts(&take(&mut receiver, 3).await);
    assert!(now() >= due - Duration::milliseconds(2));
    got.sort();
    assert_eq!(got, up_to(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_messages_never_arrive() {
    let name = queue(json!({}));
    let (mut a, mut b) = (client(1).await, client(2).await);
    let (mut sender, mut elsewhere) = (sender(&mut a, &name).await, crate::support::sender(&mut b, &name).await);
    let due = now() + Duration::seconds(4);
    let numbers = sender.schedule_messages(numbered(3), due).await.unwrap();
    elsewhere.cancel_scheduled_messages([numbers[0], numbers[2]]).await.unwrap();
    refused(sender.cancel_scheduled_message(numbers[0]).await, "StatusCode(404)");
    until(due + Duration::seconds(1)).await;
    let mut c = client(3).await;
    let mut receiver = receiver(&mut c, &name).await;
    assert_eq!(texts(&take(&mut receiver, 1).await), ["1"]);
    nothing(&mut receiver).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_message_with_the_same_id_is_dropped() {
    let name = queue(json!({"requiresDuplicateDetection": true}));
    let (mut a, mut b) = (client(1).await, client(2).await);
    let mut first = sender(&mut a, &name).await;
    first.send_message(message("first", "same")).await.unwrap();
    let mut sender = sender(&mut b, &name).await;
    sender.send_messages(vec![message("second", "same"), message("other", "o")]).await.unwrap();
    sender.send_message(ServiceBusMessage::new("none")).await.unwrap();
    let mut receiver = receiver(&mut a, &name).await;
    assert_eq!(texts(&take(&mut receiver, 3).await), ["first", "other", "none"]);
    nothing(&mut receiver).await;
}
