//! Sending: the program of the manual, what a message carries, batches and large messages.

use azservicebus::{CreateMessageBatchOptions, ServiceBusClient, ServiceBusClientOptions, ServiceBusMessage};
use fe2o3_amqp_types::messaging::ApplicationProperties;
use fe2o3_amqp_types::primitives::{SimpleValue, Timestamp, Uuid};
use serde_json::json;
use std::time::Duration;

use crate::support::*;

/// The two programs of the manual, with the connection string changed and without TLS.
#[tokio::test(flavor = "multi_thread")]
async fn quickstart() {
    let name = queue(json!({}));
    let connection = connection_string(host(1), &key_name(), &key());
    let mut client = ServiceBusClient::unsecured()
        .new_from_connection_string(&connection, ServiceBusClientOptions::default()).await.unwrap();
    let mut sender = client.create_sender(&name, Default::default()).await.unwrap();
    let mut message_batch = sender.create_message_batch(Default::default()).unwrap();
    for i in 0..3 {
        let message = ServiceBusMessage::new(format!("Message {}", i));
        message_batch.try_add_message(message).unwrap();
    }
    sender.send_message_batch(message_batch).await.unwrap();
    sender.dispose().await.unwrap();

    let mut receiver = client.create_receiver_for_queue(&name, Default::default()).await.unwrap();
    let messages = receiver.receive_messages(3).await.unwrap();
    for (i, message) in messages.iter().enumerate() {
        assert_eq!(message.body().unwrap(), format!("Message {i}").as_bytes());
        receiver.complete_message(message).await.unwrap();
    }
    assert_eq!(messages.len(), 3);
    receiver.dispose().await.unwrap();
    client.dispose().await.unwrap();
    counts_become(&name, json!({"active": 0, "locked": 0})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_arrive_as_they_were_sent() {
    let name = queue(json!({}));
    let mut m = message("body", "id-1");
    m.set_correlation_id("correlation".to_string());
    m.set_subject("subject".to_string());
    m.set_to("to".to_string());
    m.set_reply_to("replies".to_string());
    m.set_reply_to_session_id("reply session".to_string()).unwrap();
    m.set_content_type("application/json".to_string());
    m.set_time_to_live(Duration::from_secs(90)).unwrap();
    m.set_partition_key("partition".to_string()).unwrap();
    let time = Timestamp::from_milliseconds(1_700_000_000_123);
    let values: Vec<(&str, SimpleValue)> = vec![
        ("bool", true.into()),
        ("byte", (-7i8).into()),
        ("ubyte", 200u8.into()),
        ("short", (-300i16).into()),
        ("ushort", 60_000u16.into()),
        ("int", (-70_000i32).into()),
        ("uint", 4_000_000_000u32.into()),
        ("long", (-5_000_000_000i64).into()),
        ("ulong", 10_000_000_000_000_000_000u64.into()),
        ("float", 1.5f32.into()),
        ("double", 2.25f64.into()),
        ("char", 'ü'.into()),
        ("time", time.into()),
        ("uuid", Uuid::from([7u8; 16]).into()),
        ("string", "grün".to_string().into()),
    ];
    let mut properties = ApplicationProperties::default();
    for (name, value) in &values {
        properties.insert(name.to_string(), value.clone());
    }
    *m.application_properties_mut() = Some(properties);
    let before = now();
    send(&mut client(1).await, &name, m).await.unwrap();

    let mut at = client(2).await;
    let mut receiver = receiver(&mut at, &name).await;
    let got = take_one(&mut receiver).await;
    assert_eq!(text(&got), "body");
    assert_eq!(got.message_id().as_deref(), Some("id-1"));
    assert_eq!(got.correlation_id().as_deref(), Some("correlation"));
    assert_eq!(got.subject(), Some("subject"));
    assert_eq!(got.to(), Some("to"));
    assert_eq!(got.reply_to(), Some("replies"));
    assert_eq!(got.reply_to_session_id(), Some("reply session"));
    assert_eq!(got.content_type(), Some("application/json"));
    assert_eq!(got.time_to_live(), Some(Duration::from_secs(90)));
    assert_eq!(got.partition_key(), Some("partition"));
    assert_eq!(got.delivery_count(), Some(1));
    assert!(got.sequence_number() > 0);
    assert!((got.enqueued_time() - before).abs() < time::Duration::seconds(20));
    assert!((got.expires_at() - got.enqueued_time() - time::Duration::seconds(90)).abs() < time::Duration::seconds(1));
    let have = got.application_properties().unwrap();
    for (name, value) in &values {
        assert_eq!(have.get(*name), Some(value), "{name}");
    }
    assert_eq!(have.len(), values.len());
    receiver.complete_message(&got).await.unwrap();
    counts_become(&name, json!({"active": 0, "locked": 0})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_stored_as_its_messages_in_order() {
    let name = queue(json!({}));
    let mut at = client(3).await;
    let mut sender = sender(&mut at, &name).await;
    let mut batch = sender.create_message_batch(Default::default()).unwrap();
    assert!(batch.max_size_in_bytes() >= 256 * 1024);
    for m in numbered(200) {
        batch.try_add_message(m).unwrap();
    }
    sender.send_message_batch(batch).await.unwrap();
    let small = CreateMessageBatchOptions { max_size_in_bytes: Some(1024) };
    let mut batch = sender.create_message_batch(small).unwrap();
    let fits = numbered(200).into_iter().take_while(|m| batch.try_add_message(m.clone()).is_ok()).count();
    assert!(fits > 0 && fits < 200, "{fits} messages fit in 1024 bytes");

    let got = take(&mut receiver(&mut client(1).await, &name).await, 200).await;
    assert_eq!(texts(&got), up_to(200));
    assert_eq!(got[7].message_id().as_deref(), Some("m-7"));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_take_many_frames_and_larger_ones_are_refused() {
    let name = queue(json!({"maxMessageBytes": 1024 * 1024}));
    let mut at = client(1).await;
    let mut sender = sender(&mut at, &name).await;
    let sent: Vec<Vec<u8>> = [256 * 1024, 1000 * 1024, 1].iter().map(|n| (0..*n).map(|i| (i % 251) as u8).collect()).collect();
    for body in &sent {
        sender.send_message(ServiceBusMessage::new(body.clone())).await.unwrap();
    }
    let mut other = client(3).await;
    let mut receiver = receiver(&mut other, &name).await;
    let got = take(&mut receiver, sent.len()).await;
    for (m, body) in got.iter().zip(&sent) {
        assert!(m.body().unwrap() == body, "a body of {} bytes differs", body.len());
        receiver.complete_message(m).await.unwrap();
    }
    let large = ServiceBusMessage::new(vec![0u8; 1100 * 1024]);
    assert!(sender.send_message(large).await.is_err()); // the crate does not say why
    counts_become(&name, json!({"active": 0, "locked": 0})).await;
}
