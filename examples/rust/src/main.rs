//! Print messages and finish them, until Ctrl-C; one that says "fail" is requeued once.
//!
//!     cd examples/rust && cargo run -- [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT]

use std::time::Duration;

use tokio::signal::unix::{signal, SignalKind};
use tokio_nsq::{
    NSQChannel, NSQConfigShared, NSQConsumer, NSQConsumerConfig, NSQConsumerConfigSources,
    NSQConsumerLookupConfig, NSQEvent, NSQMessage, NSQRequeueDelay, NSQTopic,
};

const USAGE: &str = "usage: consume [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT]";

/// For how long answers are gathered before they are sent; tokio-nsq: 250 ms.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

struct Arguments {
    names: Vec<String>,
    nsqd: Vec<String>,
    nsqlookupd: Vec<String>,
}

/// None if there is anything that it does not know.
fn read_arguments(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut given = Arguments { names: vec![], nsqd: vec![], nsqlookupd: vec![] };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--nsqd" => given.nsqd.push(words.next()?),
            "--nsqlookupd" => given.nsqlookupd.push(words.next()?),
            flag if flag.starts_with('-') => return None,
            _ => given.names.push(word),
        }
    }
    if given.nsqd.is_empty() {
        given.nsqd.push("127.0.0.1:4150".to_string());
    }
    Some(given)
}

/// The crate takes one kind of addresses: those of nsqlookupd if there are any.
fn connect(given: &Arguments) -> Option<NSQConsumer> {
    let name = |index, default: &str| given.names.get(index).cloned().unwrap_or(default.to_string());
    let sources = if given.nsqlookupd.is_empty() {
        NSQConsumerConfigSources::Daemons(given.nsqd.clone())
    } else {
        let addresses = given.nsqlookupd.iter().map(|address| format!("http://{address}")).collect();
        NSQConsumerConfigSources::Lookup(NSQConsumerLookupConfig::new().set_addresses(addresses))
    };
    let config =
        NSQConsumerConfig::new(NSQTopic::new(name(0, "test"))?, NSQChannel::new(name(1, "printer"))?);
    let shared = NSQConfigShared::new().set_flush_interval(FLUSH_INTERVAL);
    Some(config.set_max_in_flight(100).set_sources(sources).set_shared(shared).build())
}

fn handle(message: &NSQMessage) -> Result<(), String> {
    let body = String::from_utf8_lossy(&message.body);
    if body == "fail" && message.attempt == 1 {
        return Err("this message fails once".to_string());
    }
    println!("{body}");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let Some(mut consumer) = read_arguments(std::env::args().skip(1)).and_then(|given| connect(&given))
    else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut finished = 0;
    loop {
        let event = tokio::select! {
            event = consumer.consume() => event,
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        };
        match event {
            Some(NSQEvent::Healthy()) => eprintln!("connected"),
            Some(NSQEvent::Unhealthy()) => eprintln!("not connected"),
            Some(NSQEvent::Message(message)) => match handle(&message) {
                Ok(()) => {
                    message.finish().await;
                    finished += 1;
                }
                // Say so: a message that is only dropped comes again after nsqd's timeout, not before.
                Err(reason) => {
                    eprintln!("requeued: {reason}");
                    message.requeue(NSQRequeueDelay::CustomDelay(Duration::from_secs(1))).await;
                }
            },
            Some(NSQEvent::Ok()) => {}
            None => break,
        }
    }
    // The crate gathers answers and does not say when they are sent.
    tokio::time::sleep(FLUSH_INTERVAL * 4).await;
    eprintln!("messages finished: {finished}");
    Ok(())
}
