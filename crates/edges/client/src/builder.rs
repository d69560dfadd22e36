//! The builder of a client.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};

use crate::balance::Balance;
use crate::client::Client;
use crate::limits;
use crate::settings::{BuildError, Metadata, Settings};

/// Makes a [`Client`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ClientBuilder {
    settings: Settings,
    shows_key: bool,
    insecure_key: bool,
    metadata: Vec<(String, Secret)>,
}

/// Text that is not shown.
#[derive(Clone)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl ClientBuilder {
    /// With this frontend too: `host:port` of its gRPC port, `https://host:port` if that speaks TLS.
    pub fn frontend(mut self, address: impl Into<String>) -> Self {
        self.settings.frontends.push(address.into());
        self
    }

    /// Connections to each frontend, by default 1; at most [`limits::CONNECTIONS_MAX`].
    pub const fn connections(mut self, connections: usize) -> Self {
        self.settings.connections = connections;
        self
    }

    /// The most requests in flight, over all frontends; one more fails with [`Error::TooManyInFlight`](crate::Error).
    pub const fn in_flight_max(mut self, requests: usize) -> Self {
        self.settings.in_flight_max = requests;
        self
    }

    /// How requests are divided among the frontends.
    pub const fn balance(mut self, balance: Balance) -> Self {
        self.settings.balance = balance;
        self
    }

    /// How long a request without a time of its own is waited for, instead of [`limits::TIMEOUT`].
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// How long after its deadline a request waits for an answer, instead of [`limits::ANSWER_GRACE`]. With less than
    /// the frontends' own `answer_grace_ms`, their answer about a missed deadline becomes
    /// [`Error::NoAnswer`](crate::Error).
    pub const fn answer_grace(mut self, grace: Duration) -> Self {
        self.settings.answer_grace = grace;
        self
    }

    /// How long a request waits for a frontend while all are away, instead of [`limits::WAIT_FOR_FRONTEND`]; its own
    /// time counts too.
    pub const fn wait_for_frontend(mut self, wait: Duration) -> Self {
        self.settings.wait_for_frontend = wait;
        self
    }

    /// Switches probes off: every frontend counts as serving, whatever was found before. For load generators, which
    /// must measure failures and not avoid them.
    pub const fn unwatched(mut self) -> Self {
        self.settings.watched = false;
        self
    }

    /// The certificate of the authority that has signed those of frontends at `https://…`, PEM.
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.authority = Some(pem.into());
        self
    }

    /// Shows the key of a tenant with every call. It is not logged. Frontends beyond loopback are then at `https://…`
    /// unless [`insecure_key`](Self::insecure_key) says otherwise.
    pub fn key(mut self, key: &str) -> Self {
        self.shows_key = true;
        self.metadata("authorization", format!("Bearer {key}"))
    }

    /// Sends the key in plaintext, too: it can be read on the network.
    pub const fn insecure_key(mut self) -> Self {
        self.insecure_key = true;
        self
    }

    /// Adds this metadata entry to every call, for proxies in front of the frontends: `authorization`, a tenant. It is
    /// not logged.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((name.into(), Secret(value.into())));
        self
    }

    /// The client. It connects in the background: see [`Client::connected`].
    ///
    /// # Errors
    /// If there is no frontend, an address is invalid, a number is out of its range, a key would travel readable, or
    /// this is no tokio runtime.
    pub fn build(self) -> Result<Client, BuildError> {
        self.check()?;
        if tokio::runtime::Handle::try_current().is_err() {
            let (key, value, expected) = ("runtime", "none".to_owned(), "a call inside a tokio runtime".to_owned());
            return Err(BuildError { key, value, expected });
        }
        let metadata = self.checked_metadata()?;
        Client::new(&self.settings, metadata)
    }

    fn check(&self) -> Result<(), BuildError> {
        let range = |key, value: usize, min: usize, max: usize| {
            let expected = format!("a number from {min} to {max}");
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(BuildError { key, value: value.to_string(), expected })
            }
        };
        range("frontends", self.settings.frontends.len(), 1, limits::FRONTENDS_MAX)?;
        range("connections", self.settings.connections, 1, limits::CONNECTIONS_MAX)?;
        range("in_flight_max", self.settings.in_flight_max, 1, tokio::sync::Semaphore::MAX_PERMITS)?;
        range("metadata", self.metadata.len(), 0, limits::METADATA_MAX)?;
        let readable = |address: &&String| !address.starts_with("https://") && !is_loopback(address);
        match self.settings.frontends.iter().find(readable).filter(|_| self.shows_key && !self.insecure_key) {
            None => Ok(()),
            Some(address) => Err(BuildError {
                key: "frontend",
                value: address.clone(),
                expected: "https://host:port, since a key is shown, or insecure_key() if the network is trusted".into(),
            }),
        }
    }

    fn checked_metadata(&self) -> Result<Metadata, BuildError> {
        let entry = |(name, value): &(String, Secret)| {
            let refuse = |value: &str, expected: &str| BuildError {
                key: "metadata",
                value: value.to_owned(),
                expected: expected.to_owned(),
            };
            let key = AsciiMetadataKey::from_str(name)
                .map_err(|_| refuse(name, "a name of small letters, digits and dashes that does not end in -bin"))?;
            // The value may be a secret.
            let mut value =
                AsciiMetadataValue::from_str(&value.0).map_err(|_| refuse(name, "a value of visible ASCII"))?;
            value.set_sensitive(true);
            Ok((key, value))
        };
        self.metadata.iter().map(entry).collect()
    }
}

impl Client {
    /// Begins to make a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}

/// Whether an address, without TLS, is of this host. Names are not resolved.
fn is_loopback(address: &str) -> bool {
    let place = address.strip_prefix("http://").unwrap_or(address);
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    let number = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || number.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_can_not_work_is_refused_by_name() {
        let one = || ClientBuilder::default().frontend("127.0.0.1:9");
        assert!(one().build().is_ok());
        for (builder, expected) in [
            (ClientBuilder::default(), "frontends = 0: expected a number from 1 to 64"),
            (one().connections(0), "connections = 0"),
            (one().connections(257), "connections = 257: expected a number from 1 to 256"),
            (one().in_flight_max(0), "in_flight_max = 0"),
            (one().frontend("no address"), "frontend = no address: expected host:port"),
            (one().frontend("host"), "frontend = host: expected host:port"),
            (one().frontend("https://host:1"), "frontend = https://host:1: expected an authority for its certificate"),
            (one().metadata("Not A Name", "x"), "metadata = Not A Name"),
            (
                one().metadata("authorization", "secret\n"),
                "metadata = authorization: expected a value of visible ASCII",
            ),
        ] {
            let message = builder.build().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
        assert!(!format!("{:?}", one().metadata("authorization", "secret")).contains("secret"));
    }

    #[tokio::test]
    async fn a_key_does_not_travel_readable_by_mistake() {
        let at = |address: &str| ClientBuilder::default().frontend(address);
        for near in ["127.0.0.1:9", "http://127.0.0.1:9", "[::1]:9", "localhost:9"] {
            assert!(at(near).key("secret").build().is_ok(), "{near}");
        }
        for far in ["10.0.0.1:9", "http://a.example:9", "127.0.0.1.a.example:9"] {
            let message = at(far).key("secret").build().unwrap_err().to_string();
            assert!(message.contains("expected https://host:port") && !message.contains("secret"), "{message}");
            assert!(at(far).build().is_ok(), "{far}: nothing is shown");
            assert!(at(far).key("secret").insecure_key().build().is_ok(), "{far}");
        }
        assert!(at("127.0.0.1:9").frontend("10.0.0.1:9").key("secret").build().is_err(), "one of several");
    }

    #[test]
    fn outside_of_a_runtime_it_says_so() {
        let message = ClientBuilder::default().frontend("127.0.0.1:9").build().unwrap_err().to_string();
        assert_eq!(message, "runtime = none: expected a call inside a tokio runtime");
    }
}
