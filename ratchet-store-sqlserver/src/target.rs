//! Parses a URL or a connection string of ADO.NET.
//!
//! Errors name settings and never show values: any value may be part of a password that was not
//! escaped correctly.

use percent_encoding::percent_decode_str;
use ratchet_core::Result;
use ratchet_sql::misconfigured;
use tiberius::AuthMethod;
use url::Url;

use crate::config::{Encryption, SCHEMES, fits_login, level};

/// The server and the database to connect to, with the credentials and settings.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) driver: tiberius::Config,
    pub(crate) host: String,
    pub(crate) encryption: Encryption,
    pub(crate) trust: Option<Trust>,
    /// Whether to try all addresses of the host at the same time.
    pub(crate) in_parallel: bool,
}

/// Certificates of the server that are accepted in addition to those that the platform trusts.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    Any,
    Authority(String),
}

/// Parses a URL or a connection string of ADO.NET.
pub(crate) fn parse(text: &str) -> Result<Target> {
    match text.split_once("://").map(|(scheme, _)| scheme) {
        Some(scheme) if SCHEMES.contains(&scheme) => parse_url(text),
        // Shows only the scheme: the rest may include a password.
        Some(scheme)
            if scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '+') =>
        {
            Err(misconfigured(
                URL,
                format!("has the scheme `{scheme}`; expected `sqlserver`"),
            ))
        }
        _ if text.contains('=') => parse_ado(text),
        _ => Err(misconfigured(
            URL,
            "has no scheme; expected `sqlserver://<user>:<password>@<host>/<database>` or \
             `Server=<host>;Database=<database>;User Id=<user>;Password=<password>`",
        )),
    }
}

const URL: &str = "the URL";
const STRING: &str = "the connection string";

fn parse_url(text: &str) -> Result<Target> {
    let refused = |problem: &str| misconfigured(URL, problem);
    let url = Url::parse(text).map_err(|error| refused(&format!("cannot be read: {error}")))?;
    let mut settings = Settings::new(URL);
    let host = url.host_str().filter(|host| !host.is_empty());
    let decoded = |part: &str| {
        let text = percent_decode_str(part).decode_utf8();
        text.map(std::borrow::Cow::into_owned)
            .map_err(|_| refused("has a part that is not UTF-8"))
    };
    settings.host = host.map(decoded).transpose()?.unwrap_or_default();
    settings.port = url.port();
    settings.user = decoded(url.username())?;
    settings.password = decoded(url.password().unwrap_or_default())?;
    settings.database = decoded(url.path().trim_start_matches('/'))?;
    for (key, value) in url.query_pairs() {
        match &*key {
            "encrypt" => {
                settings.encryption = match &*value {
                    "strict" => Encryption::Strict,
                    "true" | "required" => Encryption::Required,
                    "login" => Encryption::Login,
                    "off" => Encryption::Off,
                    _ => {
                        return Err(refused(
                            "has an invalid `encrypt`; expected `strict`, `required`, `login` or `off`",
                        ));
                    }
                };
            }
            "trust_any_certificate" => settings.trusts_any = settings.flag(&key, &value)?,
            "trust_authority" => settings.authority = Some(value.into_owned()),
            "host_in_certificate" => settings.host_in_certificate = Some(value.into_owned()),
            "application_name" => settings.application_name = value.into_owned(),
            "multi_subnet_failover" => settings.in_parallel = settings.flag(&key, &value)?,
            _ => return Err(settings.unknown(&key)),
        }
    }
    settings.target()
}

fn parse_ado(text: &str) -> Result<Target> {
    let mut settings = Settings::new(STRING);
    for (key, value) in pairs(text)? {
        // Names may be written with or without spaces: `ApplicationName` and `Application Name`.
        let name = key.to_ascii_lowercase().replace(' ', "");
        match name.as_str() {
            "server" | "datasource" => settings.server(&value)?,
            "database" | "initialcatalog" | "databasename" => settings.database = value,
            "userid" | "uid" | "user" | "username" => settings.user = value,
            "password" | "pwd" => settings.password = value,
            "applicationname" | "app" => settings.application_name = value,
            "encrypt" => {
                settings.encryption = match value.to_ascii_lowercase().as_str() {
                    "strict" => Encryption::Strict,
                    "true" | "yes" | "mandatory" => Encryption::Required,
                    "false" | "no" | "optional" => Encryption::Login,
                    _ => {
                        return Err(misconfigured(
                            STRING,
                            "has an invalid `Encrypt`; expected `Strict`, `True` or `False`",
                        ));
                    }
                };
            }
            "trustservercertificate" => settings.trusts_any = settings.flag(&key, &value)?,
            "trustservercertificateca" => settings.authority = Some(value),
            "hostnameincertificate" => settings.host_in_certificate = Some(value),
            "multisubnetfailover" => settings.in_parallel = settings.flag(&key, &value)?,
            // Settings that portals write into every string, and that have no effect here.
            "persistsecurityinfo"
            | "multipleactiveresultsets"
            | "connecttimeout"
            | "connectiontimeout" => {}
            "integratedsecurity" | "trusted_connection" => {
                if settings.flag(&key, &value).unwrap_or(true) {
                    return Err(misconfigured(
                        STRING,
                        format!("has {key}: only a user with a password can log in"),
                    ));
                }
            }
            _ => return Err(settings.unknown(&key)),
        }
    }
    settings.target()
}

/// The settings of a URL or a connection string. A setting may have several names there.
struct Settings {
    /// Name of the parsed text in messages: "the URL" or "the connection string".
    from: &'static str,
    host: String,
    port: Option<u16>,
    user: String,
    password: String,
    database: String,
    application_name: String,
    encryption: Encryption,
    trusts_any: bool,
    authority: Option<String>,
    host_in_certificate: Option<String>,
    in_parallel: bool,
}

impl Settings {
    fn new(from: &'static str) -> Self {
        Self {
            from,
            host: String::new(),
            port: None,
            user: String::new(),
            password: String::new(),
            database: String::new(),
            application_name: "ratchet".to_owned(),
            encryption: Encryption::Required,
            trusts_any: false,
            authority: None,
            host_in_certificate: None,
            in_parallel: false,
        }
    }

    fn unknown(&self, key: &str) -> ratchet_core::StoreError {
        misconfigured(self.from, format!("has the unknown setting `{key}`"))
    }

    fn flag(&self, key: &str, value: &str) -> Result<bool> {
        match value.to_ascii_lowercase().as_str() {
            "true" | "yes" => Ok(true),
            "false" | "no" => Ok(false),
            _ => Err(misconfigured(
                self.from,
                format!("has {key}, which is neither `true` nor `false`"),
            )),
        }
    }

    /// Parses the setting `Server` of a connection string: `[tcp:]<host>[\<instance>][,<port>]`.
    fn server(&mut self, value: &str) -> Result<()> {
        let refused = |problem: &str| misconfigured(STRING, problem);
        let value = match value.split_once(':') {
            Some((protocol, rest)) if protocol.eq_ignore_ascii_case("tcp") => rest,
            Some((protocol, _))
                if ["np", "lpc", "admin"].contains(&protocol.to_ascii_lowercase().as_str()) =>
            {
                return Err(refused("has a Server with a protocol other than `tcp:`"));
            }
            Some(_) if !value.contains('[') && value.matches(':').count() == 1 => {
                return Err(refused(
                    "has a Server with a colon; write the port after a comma: `Server=<host>,<port>`",
                ));
            }
            _ => value,
        };
        let (host, port) = match value.split_once(',') {
            Some((host, port)) => (host, Some(port)),
            None => (value, None),
        };
        self.port = match port.map(|port| port.trim().parse()) {
            Some(Ok(port)) => Some(port),
            Some(Err(_)) => return Err(refused("has a Server whose port is not a number")),
            None => None,
        };
        let host = match host.split_once('\\') {
            // If there is a port, it selects the instance, as in every client of SQL Server.
            Some((host, _)) if self.port.is_some() => host,
            Some(_) => {
                return Err(refused(
                    "has a Server with an instance; give the port that it listens on instead: \
                     `Server=<host>,<port>`",
                ));
            }
            None => host,
        };
        self.host = match host.trim() {
            "." | "(local)" => "localhost".to_owned(),
            host => host.to_owned(),
        };
        Ok(())
    }

    fn target(self) -> Result<Target> {
        let refused = |problem: &str| Err(misconfigured(self.from, problem));
        if self.host.is_empty() {
            return refused("has no host");
        }
        if self.user.is_empty() {
            return refused("has no user");
        }
        for (what, value) in [
            ("user", &self.user),
            ("database", &self.database),
            ("application name", &self.application_name),
        ] {
            if !fits_login(value) {
                return refused(&format!("has a {what} that is longer than 128 characters"));
            }
        }
        let trust = match (self.trusts_any, self.authority) {
            (true, Some(_)) => {
                return refused("trusts any certificate, but also names an authority; choose one");
            }
            (true, None) => Some(Trust::Any),
            (false, authority) => authority.map(Trust::Authority),
        };
        let mut driver = tiberius::Config::new();
        // Removes the brackets that an IPv6 address has in a URL.
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        driver.host(host);
        driver.port(self.port.unwrap_or(1433));
        driver.authentication(AuthMethod::sql_server(self.user, self.password));
        driver.application_name(self.application_name);
        driver.encryption(level(self.encryption));
        if !self.database.is_empty() {
            driver.database(self.database);
        }
        if let Some(host) = self.host_in_certificate {
            driver.hostname_in_certificate(host);
        }
        Ok(Target {
            driver,
            host: host.to_owned(),
            encryption: self.encryption,
            trust,
            in_parallel: self.in_parallel,
        })
    }
}

/// Splits a connection string into pairs of name and value. A name ends at the first `=`. A value
/// ends at the next semicolon, unless it is enclosed in quotes or braces. A quote inside a quoted
/// value is doubled.
fn pairs(text: &str) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start_matches(|c: char| c == ';' || c.is_whitespace());
    while !rest.is_empty() {
        let (key, after) = match rest.split_once('=') {
            Some((key, after)) if !key.trim().is_empty() && !key.contains(';') => (key, after),
            _ => {
                return Err(misconfigured(
                    STRING,
                    "has a part that is not of the form `<name>=<value>`; put a value with a \
                     semicolon in quotes",
                ));
            }
        };
        let (value, after) = value(after.trim_start())?;
        pairs.push((key.trim().to_owned(), value));
        rest = after.trim_start_matches(|c: char| c == ';' || c.is_whitespace());
    }
    Ok(pairs)
}

/// Parses the value at the beginning of `text`. Returns the value, and the text after it.
fn value(text: &str) -> Result<(String, &str)> {
    let close = match text.chars().next() {
        Some(quote @ ('"' | '\'')) => quote,
        Some('{') => '}',
        _ => {
            let (value, rest) = text.split_once(';').unwrap_or((text, ""));
            return Ok((value.trim_end().to_owned(), rest));
        }
    };
    let (mut value, mut rest) = (String::new(), &text[1..]);
    loop {
        let Some((part, after)) = rest.split_once(close) else {
            return Err(misconfigured(STRING, "has a quote that is not closed"));
        };
        value += part;
        match after.strip_prefix(close) {
            Some(after) if close != '}' => {
                value.push(close);
                rest = after;
            }
            _ => {
                let after = after.trim_start();
                if after.is_empty() || after.starts_with(';') {
                    return Ok((value, after));
                }
                return Err(misconfigured(
                    STRING,
                    "has text after the closing quote of a value",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Target {
        match parse(text) {
            Ok(target) => target,
            Err(error) => panic!("{text}: {error}"),
        }
    }

    /// Returns the settings that the driver gets, as text without the password.
    fn shown(text: &str) -> String {
        format!("{:?}", read(text).driver)
    }

    fn refusal(text: &str) -> String {
        match parse(text) {
            Ok(_) => panic!("expected {text} to be rejected"),
            Err(error) => {
                assert_eq!(error.kind(), ratchet_core::StoreErrorKind::Misconfigured);
                error.to_string()
            }
        }
    }

    fn password(text: &str) -> String {
        let all = pairs(text).unwrap();
        let found = all.into_iter().find(|(key, _)| key == "Password");
        found.unwrap().1
    }

    #[test]
    fn urls_are_decoded_part_by_part() {
        let url = "mssql://m%C3%A9:p%3A@db.example/my%20%5Bapp%5D?application_name=a+b%26c";
        let shown = shown(url);
        for part in ["mé", "\"my [app]\"", "\"a b&c\"", "\"db.example\"", "1433"] {
            assert!(shown.contains(part), "expected `{part}` in {shown}");
        }
        assert!(!shown.contains("p:"), "{shown}");
        let six = read("sqlserver://me:p@[::1]:14330");
        assert_eq!(six.driver.get_addr(), "::1:14330");
        assert!(refusal("sqlserver://%FF:p@host").contains("not UTF-8"));
    }

    #[test]
    fn every_setting_of_a_url_is_one_of_the_drivers_or_refused_by_name() {
        for (setting, effect) in [
            ("encrypt=strict", "Strict"),
            ("encrypt=required", "Required"),
            ("encrypt=true", "Required"),
            ("encrypt=login", "encryption: Off"),
            ("encrypt=off", "NotSupported"),
            ("host_in_certificate=other.example", "other.example"),
            ("application_name=app-1", "app-1"),
        ] {
            let shown = shown(&format!("sqlserver://me:p@host/db?{setting}"));
            assert!(shown.contains(effect), "{setting}: {shown}");
        }
        let with = |setting: &str| format!("sqlserver://me:p@host/db?{setting}");
        assert!(read(&with("multi_subnet_failover=true")).in_parallel);
        let trust = read(&with("trust_any_certificate=true")).trust;
        assert!(matches!(trust, Some(Trust::Any)));
        assert!(read(&with("trust_any_certificate=false")).trust.is_none());
        let trust = read(&with("trust_authority=ca.pem")).trust;
        assert!(matches!(trust, Some(Trust::Authority(path)) if path == "ca.pem"));
        for (setting, named) in [
            ("sslmode=require", "`sslmode`"),
            ("encrypt=perhaps", "encrypt"),
            ("trust_any_certificate=1", "trust_any_certificate"),
            ("multi_subnet_failover=1", "multi_subnet_failover"),
            (
                "trust_any_certificate=true&trust_authority=ca.pem",
                "authority",
            ),
        ] {
            let problem = refusal(&with(setting));
            assert!(problem.contains(named), "{problem}");
        }
    }

    #[test]
    fn connection_strings_are_read_as_ado_does() {
        let portal = "Server=tcp:db.example,14330;Initial Catalog=app;Persist Security Info=False;\
                      User ID=me;Password={p;=w};MultipleActiveResultSets=False;Encrypt=True;\
                      TrustServerCertificate=False;Connection Timeout=30;";
        let target = read(portal);
        assert_eq!(target.driver.get_addr(), "db.example:14330");
        assert!(target.trust.is_none());
        let shown = shown(portal);
        assert!(shown.contains("\"app\"") && shown.contains("Required"));
        assert!(shown.contains("\"ratchet\""), "{shown}");
        for (server, address) in [
            ("db.example", "db.example:1433"),
            ("db.example,99", "db.example:99"),
            ("TCP:db.example , 99", "db.example:99"),
            ("db.example\\fast,99", "db.example:99"),
            ("(local)", "localhost:1433"),
            (".", "localhost:1433"),
        ] {
            let text = format!("Data Source={server};uid=me;pwd=p");
            assert_eq!(read(&text).driver.get_addr(), address);
        }
        let all = read(
            "server=h;user=me;Trust Server Certificate=yes;MultiSubnetFailover=True;\
             integrated security=false;ApplicationName=a",
        );
        assert!(matches!(all.trust, Some(Trust::Any)) && all.in_parallel);
    }

    #[test]
    fn values_may_have_what_separates_them() {
        for (written, meant) in [
            ("Password=plain=;Server=h", "plain="),
            ("Password= spaced ;Server=h", "spaced"),
            ("Password=' a;b=\"c '  ;Server=h", " a;b=\"c "),
            ("Password=\"a\"\"b'\"", "a\"b'"),
            ("Password='a''b'", "a'b"),
            ("Password={a'b\"c;}", "a'b\"c;"),
            ("Password=größe🦀", "größe🦀"),
            ("Password=", ""),
            (" ; ;Password=p;; ", "p"),
        ] {
            assert_eq!(password(written), meant, "{written}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_and_no_value_is_shown() {
        let whole = |text: &str| format!("Server=host;User Id=me;Password=secret;{text}");
        for (text, named) in [
            (whole("Max Pool Size=9"), "`Max Pool Size`"),
            (whole("Encrypt=secret"), "Encrypt"),
            (
                whole("TrustServerCertificate=secret"),
                "TrustServerCertificate",
            ),
            (whole("Integrated Security=SSPI"), "Integrated Security"),
            (whole("Trusted_Connection=yes"), "Trusted_Connection"),
            (
                whole("TrustServerCertificate=true;TrustServerCertificateCA=secret.pem"),
                "authority",
            ),
            (whole("secret"), "not of the form `<name>=<value>`"),
            (whole("=secret"), "not of the form `<name>=<value>`"),
            ("Server=h;Password=se;cret;Database=d".into(), "quotes"),
            ("Server=h;Password='secret".into(), "not closed"),
            (
                "Server=h;Password='secret'secret".into(),
                "after the closing quote",
            ),
            ("Server=host\\secret;User Id=me".into(), "instance"),
            (
                "Server=host,secret;User Id=me".into(),
                "port is not a number",
            ),
            (
                "Server=host,70000;User Id=me".into(),
                "port is not a number",
            ),
            ("Server=np:secret;User Id=me".into(), "`tcp:`"),
            ("Server=NP:secret;User Id=me".into(), "`tcp:`"),
            ("Server=db:1433;User Id=me".into(), "a comma"),
            (format!("Server=db;User Id={}", "u".repeat(129)), "longer"),
            ("User Id=me;Password=secret".into(), "no host"),
            ("Server=host;Password=secret".into(), "no user"),
            ("sqlserver://:secret@host/db".into(), "no user"),
            ("sqlserver://me:secret@/db".into(), "the URL"),
            ("sqlserver://me:secret@host:port/db".into(), "the URL"),
            ("mysql://me:secret@host/db".into(), "`mysql`"),
            ("me:secret@host/db".into(), "no scheme"),
        ] {
            let problem = refusal(&text);
            assert!(problem.contains(named), "{text}: {problem}");
            assert!(!problem.contains("secret"), "{text}: {problem}");
        }
    }
}
