//! The host name or address in a certificate, for clients that check it.

use std::str::FromStr;

use rcgen::SanType;
use rustls::pki_types::ServerName;

/// A host name or an IP address. This crate's clients check the [`Identity`](crate::Identity) instead; foreign ones,
/// such as KEDA's, accept a server only if its certificate names the host that they dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(ServerName<'static>);

/// The text is not a [`HostName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no host; expected a name such as symphony-control.default.svc or an IP address, without a port")]
pub struct HostNameError(String);

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        ServerName::try_from(text.to_owned()).map(Self).map_err(|_| HostNameError(text.to_owned()))
    }
}

impl HostName {
    /// The form of an alternative name in a certificate.
    pub(crate) fn alternative_name(&self) -> Result<SanType, rcgen::Error> {
        Ok(match &self.0 {
            ServerName::IpAddress(address) => SanType::IpAddress((*address).into()),
            name => SanType::DnsName((&*name.to_str()).try_into()?),
        })
    }
}
