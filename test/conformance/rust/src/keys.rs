//! Keys, tokens, TLS and WebSocket.

use azservicebus::{ServiceBusClient, ServiceBusMessage, ServiceBusTransportType};
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;

const TOKEN_SECONDS: u32 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn wrong_key_is_refused() {
    let name = queue(json!({}));
    for (key_name, key) in [(key_name(), "d3Jvbmc=".to_string()), ("nobody".to_string(), key())] {
        let mut at = client_with(host(1), &key_name, &key, once()).await.unwrap();
        refused(at.create_sender(&name, Default::default()).await.map(|_| ()), "401");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_send_may_not_receive_and_the_other_way_round() {
    let name = queue(json!({}));
    let mut sends = client_with(host(1), "Sender", &key(), once()).await.unwrap();
    let mut listens = client_with(host(2), "Listener", &key(), once()).await.unwrap();
    send(&mut sends, &name, ServiceBusMessage::new("1")).await.unwrap();
    refused(sends.create_receiver_for_queue(&name, Default::default()).await.map(|_| ()), "nauthorized");
    refused(listens.create_sender(&name, Default::default()).await.map(|_| ()), "nauthorized");
    let mut receiver = receiver(&mut listens, &name).await;
    let m = take_one(&mut receiver).await;
    receiver.complete_message(&m).await.unwrap();
    counts_become(&name, json!({"active": 0, "locked": 0})).await;
}

/// A credential with a role at the identity provider; it counts how many tokens it gave.
#[derive(Debug)]
struct Bearer {
    role: &'static str,
    seconds: u32, // of the token
    named: u32,   // what the credential says of it
    given: AtomicU32,
}

impl Bearer {
    fn new(role: &'static str, seconds: u32, named: u32) -> Arc<Self> {
        Arc::new(Bearer { role, seconds, named, given: AtomicU32::new(0) })
    }
}

#[async_trait::async_trait]
impl TokenCredential for Bearer {
    async fn get_token(&self, _: &[&str], _: Option<TokenRequestOptions>) -> azure_core::Result<AccessToken> {
        self.given.fetch_add(1, Ordering::Relaxed);
        let token = token_of(self.role, self.seconds);
        Ok(AccessToken::new(token, now() + time::Duration::seconds(self.named.into())))
    }
}

async fn bearer_client(credential: Arc<Bearer>, retries: u32) -> Client {
    let options = retrying(retries, Duration::from_secs(20));
    ServiceBusClient::unsecured().new_from_token_credential(host(1), credential, options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_grants_what_its_roles_allow() {
    let name = queue(json!({}));
    let mut owner = bearer_client(Bearer::new("Azure Service Bus Data Owner", 600, 600), 0).await;
    send(&mut owner, &name, ServiceBusMessage::new("1")).await.unwrap();
    let mut receiver = receiver(&mut owner, &name).await;
    let m = take_one(&mut receiver).await;
    receiver.complete_message(&m).await.unwrap();
    let mut sends = bearer_client(Bearer::new("Azure Service Bus Data Sender", 600, 600), 0).await;
    send(&mut sends, &name, ServiceBusMessage::new("2")).await.unwrap();
    refused(sends.create_receiver_for_queue(&name, Default::default()).await.map(|_| ()), "nauthorized");
    let mut nobody = bearer_client(Bearer::new("Reader", 600, 600), 0).await;
    refused(nobody.create_sender(&name, Default::default()).await.map(|_| ()), "nauthorized");
    counts_become(&name, json!({"active": 1})).await;
}

/// The crate asks for the next token when the time comes that the credential names, and does not attach a link again that
/// the broker has detached (`should_try_recover` of its errors): a credential has to name a time before the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_ends_with_its_token_and_continues_with_the_next() {
    let name = queue(json!({}));
    let credential = Bearer::new("Azure Service Bus Data Owner", TOKEN_SECONDS, TOKEN_SECONDS / 2);
    let mut at = bearer_client(credential.clone(), 0).await;
    let (mut sender, mut receiver) = (sender(&mut at, &name).await, receiver(&mut at, &name).await);
    let once = Bearer::new("Azure Service Bus Data Owner", TOKEN_SECONDS, 600);
    let mut ending = bearer_client(once.clone(), 0).await;
    let mut ended = crate::support::sender(&mut ending, &name).await;
    for i in 0..3 {
        sender.send_message(message(&i.to_string(), &format!("m-{i}"))).await.unwrap();
        let m = take_one(&mut receiver).await;
        assert_eq!(text(&m), i.to_string());
        receiver.complete_message(&m).await.unwrap();
        tokio::time::sleep(Duration::from_secs((TOKEN_SECONDS - 1).into())).await;
    }
    assert!(credential.given.load(Ordering::Relaxed) >= 3);
    assert!(ended.send_message(ServiceBusMessage::new("late")).await.is_err());
    assert_eq!(once.given.load(Ordering::Relaxed), 1);
    counts_become(&name, json!({"active": 0, "locked": 0, "deadLetter": 0})).await;
}

async fn secure_round_trip(transport_type: ServiceBusTransportType, port: u16) {
    secure_port(port);
    let name = secure_queue();
    let mut options = once();
    options.transport_type = transport_type;
    let connection = connection_string("localhost", &key_name(), &key());
    let mut at = ServiceBusClient::new_from_connection_string(connection, options).await.unwrap();
    send(&mut at, &name, ServiceBusMessage::new("x".repeat(100_000))).await.unwrap();
    let mut receiver = receiver(&mut at, &name).await;
    let m = take_one(&mut receiver).await;
    assert_eq!(m.body().unwrap().len(), 100_000);
    receiver.complete_message(&m).await.unwrap();
    at.dispose().await.unwrap();
}

/// OpenSSL, which native-tls uses here, takes the authority from SSL_CERT_FILE.
#[tokio::test(flavor = "multi_thread")]
async fn tls_by_the_development_authority() {
    secure_round_trip(ServiceBusTransportType::AmqpTcp, 5671).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn amqp_over_websocket() {
    secure_round_trip(ServiceBusTransportType::AmqpWebSocket, 443).await;
}
