//! What the cases share: members and relays to them, clients, queues of their own, and waits with a deadline.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use azservicebus::core::BasicRetryPolicy;
use azservicebus::{
    ServiceBusClient, ServiceBusClientOptions, ServiceBusMessage, ServiceBusPeekedMessage,
    ServiceBusReceivedMessage, ServiceBusReceiver, ServiceBusReceiverOptions, ServiceBusRetryOptions, ServiceBusSender,
    SubQueue,
};
use serde_json::{json, Value};
use time::OffsetDateTime;

pub type Client = ServiceBusClient<BasicRetryPolicy>;

const WITHIN: Duration = Duration::from_secs(30);
/// How much later what a member sends reaches the crate. fe2o3-amqp 0.14.1 notes a delivery after it has sent it
/// (`send_payload_with_transfer` in its `link/sender_link.rs`), drops an outcome that comes before, and waits for it in vain.
/// Requests to a management node are accepted at once, so over loopback, on a busy machine, that happened in most runs.
const LATENCY: Duration = Duration::from_millis(10);
const NO_MESSAGE_WAIT: Duration = Duration::from_millis(1200);

pub fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: `bash run` sets it"))
}

/// A part of a connection string.
pub fn part(connection: &str, name: &str) -> String {
    let begin = format!("{name}=");
    connection.split(';').find_map(|p| p.strip_prefix(&begin)).unwrap().to_string()
}

/// Host and port of a connection string.
fn address(connection: &str) -> String {
    part(connection, "Endpoint").trim_start_matches("sb://").trim_end_matches('/').to_string()
}

/// The crate connects to the standard ports only: it drops the port of an endpoint, also of one of its own
/// (`custom_endpoint_address`). So each address gets a host of its own, whose port 5672 leads there.
pub fn host_for(to: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let host = format!("127.0.1.{}", NEXT.fetch_add(1, Ordering::Relaxed));
    listen(&host, 5672, to);
    host
}

/// Makes the standard port of localhost for TLS or WebSocket lead to the member that uses TLS.
pub fn secure_port(port: u16) {
    listen("127.0.0.1", port, &address(&environment("PEEKLOCK_TLS")));
}

fn listen(host: &str, port: u16, to: &str) {
    let listener = TcpListener::bind((host, port)).unwrap();
    let to = to.to_string();
    thread::spawn(move || {
        for from in listener.incoming().flatten() {
            if let Ok(target) = TcpStream::connect(&to) {
                relay(from.try_clone().unwrap(), target.try_clone().unwrap(), Duration::ZERO);
                relay(target, from, LATENCY);
            }
        }
    });
}

fn relay(mut from: TcpStream, mut to: TcpStream, latency: Duration) {
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            thread::sleep(latency);
            if to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

/// The host of a member, 1 to 3.
pub fn host(member: usize) -> &'static str {
    static HOSTS: OnceLock<Vec<String>> = OnceLock::new();
    let hosts = HOSTS.get_or_init(|| {
        (1..=3).map(|m| host_for(&address(&environment(&format!("PEEKLOCK_MEMBER_{m}"))))).collect()
    });
    &hosts[member - 1]
}

pub fn key_name() -> String {
    part(&environment("PEEKLOCK_MEMBER_1"), "SharedAccessKeyName")
}

pub fn key() -> String {
    part(&environment("PEEKLOCK_MEMBER_1"), "SharedAccessKey")
}

pub fn connection_string(host: &str, key_name: &str, key: &str) -> String {
    format!("Endpoint=sb://{host}/;SharedAccessKeyName={key_name};SharedAccessKey={key}")
}

/// Options of clients that do not retry, because a retry would hide a failure.
pub fn once() -> ServiceBusClientOptions {
    retrying(0, Duration::from_secs(20))
}

pub fn retrying(max_retries: u32, try_timeout: Duration) -> ServiceBusClientOptions {
    let delay = Duration::from_millis(200);
    let retry_options = ServiceBusRetryOptions { max_retries, delay, try_timeout, ..Default::default() };
    ServiceBusClientOptions { retry_options, ..Default::default() }
}

pub async fn client(member: usize) -> Client {
    client_with(host(member), &key_name(), &key(), once()).await.unwrap()
}

pub async fn client_with(
    host: &str, key_name: &str, key: &str, options: ServiceBusClientOptions,
) -> Result<Client, azure_core::Error> {
    ServiceBusClient::unsecured().new_from_connection_string(connection_string(host, key_name, key), options).await
}

pub async fn sender(client: &mut Client, queue: &str) -> ServiceBusSender {
    client.create_sender(queue, Default::default()).await.unwrap()
}

/// Sends messages and disposes of the sender: a client whose links are dropped otherwise may end its session, because the
/// crate does not know the handle of the detach that answers (`amqp:session:unattached-handle`).
pub async fn send_all(client: &mut Client, queue: &str, messages: Vec<ServiceBusMessage>) -> Result<(), azure_core::Error> {
    let mut sender = sender(client, queue).await;
    sender.send_messages(messages).await?;
    sender.dispose().await
}

pub async fn send(client: &mut Client, queue: &str, message: ServiceBusMessage) -> Result<(), azure_core::Error> {
    send_all(client, queue, vec![message]).await
}

pub async fn receiver(client: &mut Client, queue: &str) -> ServiceBusReceiver {
    client.create_receiver_for_queue(queue, Default::default()).await.unwrap()
}

pub async fn dead_letters(client: &mut Client, queue: &str) -> ServiceBusReceiver {
    let options = ServiceBusReceiverOptions { sub_queue: SubQueue::DeadLetter, ..Default::default() };
    client.create_receiver_for_queue(queue, options).await.unwrap()
}

/// A message with an id.
pub fn message(body: &str, id: &str) -> ServiceBusMessage {
    let mut m = ServiceBusMessage::new(body);
    m.set_message_id(id).unwrap();
    m
}

/// n messages, with the bodies 0 to n-1 and message ids.
pub fn numbered(n: usize) -> Vec<ServiceBusMessage> {
    (0..n).map(|i| message(&i.to_string(), &format!("m-{i}"))).collect()
}

/// The bodies of numbered.
pub fn up_to(n: usize) -> Vec<String> {
    (0..n).map(|i| i.to_string()).collect()
}

pub fn text(m: &ServiceBusReceivedMessage) -> String {
    String::from_utf8(m.body().unwrap().to_vec()).unwrap()
}

pub fn texts(messages: &[ServiceBusReceivedMessage]) -> Vec<String> {
    messages.iter().map(text).collect()
}

pub fn peeked(messages: &[ServiceBusPeekedMessage]) -> Vec<String> {
    messages.iter().map(|m| String::from_utf8(m.body().unwrap().to_vec()).unwrap()).collect()
}

/// Receives exactly n messages, in several calls if need be.
pub async fn take(receiver: &mut ServiceBusReceiver, n: usize) -> Vec<ServiceBusReceivedMessage> {
    let deadline = Instant::now() + WITHIN;
    let mut got = Vec::new();
    while got.len() < n && Instant::now() < deadline {
        let more = (n - got.len()) as u32;
        got.extend(receiver.receive_messages_with_max_wait_time(more, Duration::from_secs(5)).await.unwrap());
    }
    assert_eq!(got.len(), n, "received {:?}", texts(&got));
    got
}

pub async fn take_one(receiver: &mut ServiceBusReceiver) -> ServiceBusReceivedMessage {
    take(receiver, 1).await.remove(0)
}

/// Checks that a receiver gets nothing for a while.
pub async fn nothing(receiver: &mut ServiceBusReceiver) {
    let got = receiver.receive_messages_with_max_wait_time(10, NO_MESSAGE_WAIT).await.unwrap();
    assert_eq!(texts(&got), Vec::<String>::new());
}

/// The text of an error, with those that it wraps.
pub fn whole(error: &azure_core::Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(e) = source {
        text += &format!(": {e}");
        source = e.source();
    }
    text
}

/// Checks that a call was refused with an error that names a condition.
#[track_caller]
pub fn refused<T>(result: Result<T, azure_core::Error>, condition: &str) {
    match result {
        Ok(_) => panic!("was not refused with {condition}"),
        Err(e) => assert!(whole(&e).contains(condition), "{}", whole(&e)),
    }
}

// The control API.

fn http(method: &str, url: &str, body: Option<&Value>) -> io::Result<(u16, String)> {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "{method} /{path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, rest) = answer.split_once("\r\n\r\n").unwrap();
    Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), rest.to_string()))
}

fn call(method: &str, url: &str, body: Option<&Value>) -> String {
    let (status, answer) = http(method, url, body).unwrap();
    assert!(status < 300, "{method} {url}: {status} {answer}");
    answer
}

/// Calls the control API of member 1.
pub fn control(method: &str, path: &str, body: Option<Value>) -> Value {
    let answer = call(method, &(environment("PEEKLOCK_ADMIN_1") + path), body.as_ref());
    serde_json::from_str(&answer).unwrap_or(Value::Null)
}

/// A name that no other case has.
pub fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("rust-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn queue(settings: Value) -> String {
    let name = name();
    control("PUT", &format!("/v1/queues/{name}"), Some(settings));
    name
}

pub fn secure_queue() -> String {
    let name = name();
    call("PUT", &format!("{}/v1/queues/{name}", environment("PEEKLOCK_TLS_ADMIN")), Some(&json!({})));
    name
}

pub fn topic(subscriptions: &[&str]) -> String {
    let name = name();
    control("PUT", &format!("/v1/topics/{name}"), Some(json!({})));
    for s in subscriptions {
        control("PUT", &format!("/v1/subscriptions/{name}/Subscriptions/{s}"), Some(json!({})));
    }
    name
}

/// A queue with n numbered messages.
pub async fn filled(n: usize, settings: Value) -> String {
    let name = queue(settings);
    send_all(&mut client(1).await, &name, numbered(n)).await.unwrap();
    name
}

/// Waits until a queue has these counts; others do not matter.
pub async fn counts_become(queue: &str, want: Value) {
    eventually(&format!("{queue}: {want}"), || async {
        let have = &control("GET", &format!("/v1/queues/{queue}"), None)["counts"];
        want.as_object().unwrap().iter().all(|(state, n)| &have[state] == n)
    })
    .await;
}

/// A token of the identity provider.
pub fn token_of(role: &str, seconds: u32) -> String {
    let url = environment("PEEKLOCK_ISSUER");
    call("GET", &format!("{url}/token?seconds={seconds}&role={}", role.replace(' ', "+")), None)
}

// Time.

pub async fn eventually<F: Future<Output = bool>>(what: &str, attempt: impl Fn() -> F) {
    let deadline = Instant::now() + WITHIN;
    while !attempt().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// Waits until a moment on the clock of this machine, which the members use too.
pub async fn until(moment: OffsetDateTime) {
    tokio::time::sleep((moment - now()).try_into().unwrap_or_default()).await;
}
