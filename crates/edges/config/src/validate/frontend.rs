//! Checks of the `frontend` section: its limits, who may call it, and its model repository.

use super::{Check, limits};
use crate::{FrontendConfig, NodeConfig, RepositoryConfig, Role};

impl Check {
    pub(super) fn frontend(&mut self, frontend: &FrontendConfig) {
        self.process_name("frontend.name", &frontend.name);
        self.range("frontend.request_bytes_max", frontend.request_bytes_max, 1, limits::REQUEST_BYTES_MAX);
        let in_flight = u64::from(frontend.requests_in_flight_max);
        self.range("frontend.requests_in_flight_max", in_flight, 2, limits::REQUESTS_IN_FLIGHT_MAX.into());
        for (key, connections) in [
            ("frontend.connections_max", frontend.connections_max),
            ("frontend.connections_per_address_max", frontend.connections_per_address_max),
        ] {
            self.range(key, connections.into(), 1, limits::CONNECTIONS_MAX);
        }
        self.range("frontend.answer_grace_ms", frontend.answer_grace_ms, 0, limits::ANSWER_GRACE_MS_MAX);
        self.payloads("frontend.payloads", &frontend.payloads);
        let images = &frontend.images;
        self.range("frontend.images.threads", images.threads.into(), 0, limits::IMAGE_THREADS_MAX);
        self.range("frontend.images.waiting_max", images.waiting_max.into(), 1, limits::IMAGES_WAITING_MAX);
        self.range("frontend.images.pixels_max", images.pixels_max, 1, limits::IMAGE_PIXELS_MAX);
        let key = "frontend.images.decoded_mb_max";
        self.range(key, images.decoded_mb_max, 1, limits::IMAGES_DECODED_MB_MAX);
        if images.decoded_bytes_max() < frontend.request_bytes_max {
            let (mb, bytes) = (images.decoded_mb_max, frontend.request_bytes_max);
            self.say(key, format!("{mb} MB are less than one request may have; frontend.request_bytes_max is {bytes}"));
        }
    }

    /// Who may call the public ports. To open them to every caller has to be stated explicitly.
    pub(super) fn access(&mut self, config: &NodeConfig, frontend: &FrontendConfig) {
        let tls = &frontend.tls;
        match (&tls.cert, &tls.key) {
            (Some(_), None) => self.say("frontend.tls.key", "must be given with frontend.tls.cert"),
            (None, Some(_)) => self.say("frontend.tls.cert", "must be given with frontend.tls.key"),
            (None, None) if tls.client_ca.is_some() => {
                self.say(
                    "frontend.tls.client_ca",
                    "clients show certificates over TLS only; give frontend.tls.cert and key",
                );
            }
            _ => {}
        }
        if tls.client_ca.is_some() && frontend.tenants.is_none() {
            self.say(
                "frontend.tls.client_ca",
                "frontend.tenants says whose certificates are whose; give it, or leave this out",
            );
        }
        if frontend.metrics_need_key && frontend.tenants.is_none() {
            self.say(
                "frontend.metrics_need_key",
                "there are no keys without frontend.tenants; give it, or leave this out",
            );
        }
        if frontend.tenants.is_some() && frontend.repository.token_file.is_some() {
            self.say(
                "frontend.repository.token_file",
                "with frontend.tenants, keys with the right \"repository\" load and unload models; leave it out",
            );
        }
        let origins = &frontend.cors_origins;
        if origins.len() > limits::CORS_ORIGINS_MAX {
            let (got, max) = (origins.len(), limits::CORS_ORIGINS_MAX);
            self.say("frontend.cors_origins", format!("{got} origins; expected at most {max}"));
        }
        for (index, origin) in origins.iter().enumerate().filter(|(_, origin)| !is_origin(origin)) {
            let expected = "expected scheme://host or scheme://host:port as browsers write it, in lower case and without the \
                            scheme's own port: https://console.example";
            self.say(format!("frontend.cors_origins.{index}"), format!("`{origin}` is no origin; {expected}"));
        }
        // Plaintext between processes has a rule of its own, `reach`, which allows loopback only.
        if frontend.tenants.is_some() || config.security.insecure_public || config.security.insecure_dev {
            return;
        }
        for (key, address) in frontend.public_ports() {
            if !address.is_loopback() {
                self.say(
                    key,
                    format!(
                        "{address} is not a loopback address, and without frontend.tenants it serves everybody; give the file of \
                         tenants (`symphony keys make`), use loopback, or say security.insecure_public (--insecure-public)"
                    ),
                );
            }
        }
    }

    pub(super) fn repository(&mut self, config: &NodeConfig, repository: &RepositoryConfig, role: Role) {
        let dir = "frontend.repository.dir";
        if repository.dir.is_some() && config.federation.is_some() {
            self.say(
                dir,
                "a frontend of a federation loads no models; leave it out, and load them with `symphony model load NAME --onnx FILE \
                 --profile FILE --federation HOST:PORT,…`",
            );
        }
        if repository.dir.is_none() {
            for (key, file) in repository.files() {
                if let Some(file) = file {
                    self.say(key, format!("`{}` is set, but {dir} is not; set both or none", file.display()));
                }
            }
            return;
        }
        let secured = repository.token_file.is_some() && !config.security.insecure_dev && role != Role::Up;
        for (key, file) in &repository.files()[1..] {
            match file {
                None if secured => self.say(
                    *key,
                    "must be given with frontend.repository.token_file: an operator's (`symphony certs issue --role operator`)",
                ),
                Some(file) if config.security.insecure_dev => {
                    let file = file.display();
                    self.say(*key, format!("{file} with security.insecure_dev, which uses none; drop one of the two"));
                }
                Some(_) if role == Role::Up => self.say(*key, "`up` makes certificates by itself; leave it out"),
                _ => {}
            }
        }
    }
}

/// Whether a text is the origin of a page, as browsers write it: another spelling would never be that of a page.
fn is_origin(text: &str) -> bool {
    let Some((scheme, place)) = text.split_once("://") else { return false };
    let own_port: u16 = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return false,
    };
    let (host, port) = match place.rsplit_once(':') {
        // Not a colon of an IPv6 address.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let is_port =
        |text: &str| text.parse().is_ok_and(|port: u16| port != 0 && port != own_port && port.to_string() == text);
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(host) => host.parse().is_ok_and(|address: std::net::Ipv6Addr| address.to_string() == host),
        None => {
            let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b);
            !host.is_empty() && host.bytes().all(allowed)
        }
    };
    is_host && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_spelled_as_browsers_spell_it() {
        for origin in [
            "https://a.example",
            "http://a.example:8080",
            "http://localhost:8080",
            "https://10.0.0.1:8443",
            "https://[::1]",
            "http://[fe80::1]:8080",
        ] {
            assert!(is_origin(origin), "{origin}");
        }
        for other in [
            "a.example",
            "ftp://a.example",
            "https://",
            "https://A.Example",
            "HTTPS://a.example",
            "https://a.example/",
            "https://a.example:443",
            "http://a.example:80",
            "https://a.example:",
            "https://a.example:08443",
            "https://a.example:65536",
            "https://a:b:c[",
            "https://[::1",
            "https://[0:0:0:0:0:0:0:1]",
            "https://::1",
            "https://ann@a.example",
            "null",
            "*",
        ] {
            assert!(!is_origin(other), "{other}");
        }
    }
}
