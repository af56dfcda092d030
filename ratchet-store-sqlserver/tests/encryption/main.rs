//! Tests of encryption with servers that have the wrong certificate or do not support the requested
//! encryption. These servers are simulated, so the tests need no database.
//!
//! The key and the certificates are for `db.example`, from an authority whose own key was deleted.
#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

use std::sync::Arc;

use ratchet_core::{StoreError, StoreErrorKind};
use ratchet_store_sqlserver::{Builder, Encryption, SqlServerStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const AUTHORITY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/encryption/authority.pem"
);

/// The types of packets in the protocol TDS.
const PRELOGIN: u8 = 0x12;
const LOGIN: u8 = 0x10;

/// The answers of a server in the negotiation of encryption.
const OFF: u8 = 0;
const NOT_SUPPORTED: u8 = 2;
const REQUIRED: u8 = 3;

/// Runs a server that gives this answer. Returns its URL, and what the client sends next: the type
/// of a packet and its first byte, or `None` if the client disconnects.
async fn answering(encryption: u8) -> (String, JoinHandle<Option<(u8, u8)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url(&listener);
    let served = tokio::spawn(async move {
        let (mut caller, _) = listener.accept().await.unwrap();
        let (kind, _) = packet(&mut caller).await?;
        assert_eq!(kind, PRELOGIN);
        // The offsets in the answer: the version begins at byte 11, the encryption at byte 17.
        let mut answer = vec![0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff];
        answer.extend([16, 0, 0, 0, 0, 0, encryption]);
        let length = u8::try_from(answer.len() + 8).unwrap();
        let header = [0x04, 0x01, 0, length, 0, 0, 1, 0];
        caller
            .write_all(&[&header[..], &answer].concat())
            .await
            .ok()?;
        let (kind, content) = packet(&mut caller).await?;
        Some((kind, *content.first()?))
    });
    (url, served)
}

async fn packet(caller: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut header = [0; 8];
    caller.read_exact(&mut header).await.ok()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let mut content = vec![0; length - header.len()];
    caller.read_exact(&mut content).await.ok()?;
    Some((header[0], content))
}

fn url(listener: &TcpListener) -> String {
    let address = listener.local_addr().unwrap();
    format!("sqlserver://me:secret@{address}/db")
}

/// Runs a server that encrypts from the first byte on and then sends nothing. Returns its URL, and
/// whether the client sent its first message after the TLS handshake.
async fn strict() -> (String, JoinHandle<bool>) {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url(&listener);
    let served = tokio::spawn(async move {
        let (caller, _) = listener.accept().await.unwrap();
        let Ok(mut caller) = TlsAcceptor::from(Arc::new(config)).accept(caller).await else {
            return false;
        };
        // A client that rejects the certificate has already completed the handshake, and sends
        // nothing more.
        matches!(caller.read_u8().await, Ok(PRELOGIN))
    });
    (url, served)
}

async fn refusal(builder: Builder) -> StoreError {
    let refused = builder.connect().await.unwrap_err();
    assert!(!refused.to_string().contains("secret"), "{refused}");
    refused
}

#[tokio::test]
async fn a_server_that_cannot_encrypt_is_sent_no_password() {
    for encryption in [Encryption::Required, Encryption::Login] {
        let (url, served) = answering(NOT_SUPPORTED).await;
        let refused = refusal(SqlServerStore::builder(&url).encryption(encryption)).await;
        let sent = served.await.unwrap();
        assert!(sent.is_none_or(|(kind, _)| kind != LOGIN), "{sent:?}");
        if encryption == Encryption::Required {
            assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
            assert_eq!(sent, None);
        }
    }
}

#[tokio::test]
async fn a_server_that_encrypts_only_the_login_is_not_enough() {
    let (url, served) = answering(OFF).await;
    // `Required` is the default.
    let refused = refusal(SqlServerStore::builder(&url)).await;
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
    assert!(refused.to_string().contains("encryption"), "{refused}");
    assert_eq!(served.await.unwrap(), None);
}

#[tokio::test]
async fn a_server_that_requires_encryption_gets_it_even_where_it_is_off() {
    let (url, served) = answering(REQUIRED).await;
    refusal(SqlServerStore::builder(&url).encryption(Encryption::Off)).await;
    // The client sent a TLS handshake, not a login.
    assert_eq!(served.await.unwrap(), Some((PRELOGIN, 0x16)));
}

#[tokio::test]
async fn an_untrusted_certificate_is_refused_with_what_to_set() {
    let (url, served) = strict().await;
    let builder = SqlServerStore::builder(&url).encryption(Encryption::Strict);
    let refused = refusal(builder).await;
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
    let text = refused.to_string();
    for part in ["certificate", "trust_authority", "host_in_certificate"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("trust_cert_ca"), "{text}");
    assert!(!served.await.unwrap());
}

#[tokio::test]
async fn a_certificate_of_another_host_is_refused() {
    let (url, served) = strict().await;
    let builder = SqlServerStore::builder(&url).encryption(Encryption::Strict);
    let refused = refusal(builder.trust_authority(AUTHORITY)).await;
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
    assert!(!served.await.unwrap());
}

#[tokio::test]
async fn a_certificate_of_the_authority_and_the_host_is_taken() {
    let (url, served) = strict().await;
    let url = format!("{url}?encrypt=strict&host_in_certificate=db.example");
    let builder = SqlServerStore::builder(&url).trust_authority(AUTHORITY);
    // The client accepted the certificate. The server then closed the connection.
    assert_eq!(refusal(builder).await.kind(), StoreErrorKind::Unavailable);
    assert!(served.await.unwrap());
}

#[tokio::test]
async fn any_certificate_is_taken_where_that_is_asked_for() {
    let (url, served) = strict().await;
    let builder = SqlServerStore::builder(&url).encryption(Encryption::Strict);
    let builder = builder.trust_any_certificate();
    assert_eq!(refusal(builder).await.kind(), StoreErrorKind::Unavailable);
    assert!(served.await.unwrap());
}

#[tokio::test]
async fn an_authority_that_cannot_be_read_is_misconfigured() {
    let (url, served) = strict().await;
    let builder = SqlServerStore::builder(&url).encryption(Encryption::Strict);
    let refused = refusal(builder.trust_authority("/nowhere/ca.pem")).await;
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
    assert!(!served.await.unwrap());
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_misconfigured_where_all_is_encrypted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url(&listener);
    let served = tokio::spawn(async move {
        let (mut caller, _) = listener.accept().await.unwrap();
        caller
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        let mut rest = Vec::new();
        let _ = caller.read_to_end(&mut rest).await;
    });
    let builder = SqlServerStore::builder(&url).encryption(Encryption::Strict);
    let refused = refusal(builder).await;
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
    served.await.unwrap();
}
