//! Each module holds cases; `azservicebus.scenarios` names those that show a scenario.
#![cfg(test)]

mod content;
mod keys;
mod receive;
mod sessions;
mod settle;
mod support;
mod time;
mod topics;
