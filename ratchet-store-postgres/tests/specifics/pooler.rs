//! A pooler that switches sessions between transactions and does not track prepared statements,
//! like PgBouncer before 1.21 in transaction mode.

use std::sync::{Arc, Mutex};

use ratchet_conformance::kit::assert_kind;
use ratchet_core::StoreErrorKind;
use ratchet_store_postgres::PostgresStore;
use sqlx::postgres::PgPoolOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::open;
use crate::server::Schema;

/// The code of an encryption request. It stands where a startup message has the protocol version.
const SSL_REQUEST: [u8; 4] = [4, 210, 22, 47];

/// A pooler and its free sessions, in the order in which they were freed.
#[derive(Default)]
struct Pooler {
    host: String,
    free: Mutex<Vec<TcpStream>>,
}

impl Pooler {
    /// Starts a pooler in front of this server. Returns its URL.
    async fn start(server: &str) -> String {
        let (before, rest) = server.rsplit_once('@').unwrap();
        let (host, database) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{before}@{}/{database}", listener.local_addr().unwrap());
        let pooler = Arc::new(Self {
            host: host.to_owned(),
            ..Self::default()
        });
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let pooler = Arc::clone(&pooler);
                tokio::spawn(async move { pooler.serve(client).await });
            }
        });
        url
    }

    async fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        let mut startup = startup(&mut client).await?;
        if startup[4..8] == SSL_REQUEST {
            client.write_all(b"N").await?;
            startup = self::startup(&mut client).await?;
        }
        let mut server = TcpStream::connect(&self.host).await?;
        server.write_all(&startup).await?;
        pass_on(&mut server, &mut client).await?;
        self.free.lock().unwrap().push(server);
        loop {
            let mut asked = message(&mut client).await?;
            if asked[0] == b'X' {
                return Ok(());
            }
            let free = self.free.lock().unwrap().pop();
            let mut server = match free {
                Some(free) => free,
                None => self.session(&startup).await?,
            };
            loop {
                server.write_all(&asked).await?;
                let answers = matches!(asked[0], b'S' | b'Q');
                // 'I': no transaction is open.
                if answers && pass_on(&mut server, &mut client).await? == b'I' {
                    break;
                }
                asked = message(&mut client).await?;
            }
            self.free.lock().unwrap().push(server);
        }
    }

    async fn session(&self, startup: &[u8]) -> std::io::Result<TcpStream> {
        let mut server = TcpStream::connect(&self.host).await?;
        server.write_all(startup).await?;
        pass_on(&mut server, &mut tokio::io::sink()).await?;
        Ok(server)
    }
}

/// Reads the first message of a client, which has no type.
async fn startup(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut all = vec![0; 4];
    client.read_exact(&mut all).await?;
    let length = u32::from_be_bytes(all[..4].try_into().unwrap());
    all.resize(usize::try_from(length).unwrap(), 0);
    client.read_exact(&mut all[4..]).await?;
    Ok(all)
}

/// Reads one message, with its type first.
async fn message(from: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut all = vec![0; 5];
    from.read_exact(&mut all).await?;
    let length = u32::from_be_bytes(all[1..5].try_into().unwrap());
    all.resize(1 + usize::try_from(length).unwrap(), 0);
    from.read_exact(&mut all[5..]).await?;
    Ok(all)
}

/// Forwards answers until the server is ready for the next query. Returns the transaction status
/// that the server reports.
async fn pass_on(
    server: &mut TcpStream,
    client: &mut (impl tokio::io::AsyncWrite + Unpin),
) -> std::io::Result<u8> {
    loop {
        let answer = message(server).await?;
        client.write_all(&answer).await?;
        if answer[0] == b'Z' {
            return Ok(answer[5]);
        }
    }
}

pub(crate) async fn a_pooler_that_loses_prepared_statements_is_refused(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let url = Pooler::start(&schema.url).await;
    let by_url = PostgresStore::builder(&url).schema(&schema.name);
    let pool = PgPoolOptions::new().connect(&url).await.unwrap();
    let by_pool = PostgresStore::pool_builder(pool).schema(&schema.name);
    for through in [by_url, by_pool] {
        // Repeats, because the check may give up when it takes too long.
        let refused = loop {
            if let Err(refused) = through.clone().migrate(false).connect().await {
                break refused;
            }
        };
        assert_kind(&refused, StoreErrorKind::Misconfigured);
        let text = refused.to_string();
        assert!(
            text.contains("1.21") && text.contains("pool_mode=session"),
            "{text}"
        );
    }
}
