//! The host name or address in a certificate, for clients that check it.

use std::str::FromStr;

use rcgen::SanType;
use rustls::pki_types::ServerName;

/// A host name or an IP address. This crate's clients check the [`Identity`](crate::Identity) instead; foreign ones,
/// such as KEDA's, accept a server only if its certificate names the host that they dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(ServerName<'static>);

/// The text is not a [`Host`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no host; expected a name such as symphony-control.default.svc or an IP address, without a port")]
pub struct HostError(String);

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        ServerName::try_from(text.to_owned()).map(Self).map_err(|_| HostError(text.to_owned()))
    }
}

impl Host {
    /// The form of an alternative name in a certificate.
    pub(crate) fn alternative_name(&self) -> Result<SanType, rcgen::Error> {
        Ok(match &self.0 {
            ServerName::IpAddress(address) => SanType::IpAddress((*address).into()),
            name => SanType::DnsName((&*name.to_str()).try_into()?),
        })
    }
}
