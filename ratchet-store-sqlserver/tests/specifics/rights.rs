//! Logins without the privileges that the store needs.

use std::sync::Arc;

use ratchet_conformance::TestDatabase;
use ratchet_conformance::kit::{assert_kind, enqueue, exists, job};
use ratchet_core::StoreErrorKind;
use ratchet_core::store::{JobStore, Store};
use ratchet_store_sqlserver::SqlServerStore;

use crate::open;
use crate::server::{self, Schema};

const PASSWORD: &str = "Poor-1;'{pass}";

/// A login whose user has no privileges in the database, and the URL with which it connects.
pub(crate) struct Login<'a> {
    schema: &'a Schema,
    pub(crate) name: String,
    url: String,
}

impl<'a> Login<'a> {
    pub(crate) async fn create(schema: &'a Schema) -> Self {
        let name = format!("login_{}", &schema.name[20..]);
        let password = PASSWORD.replace('\'', "''");
        schema
            .execute(&format!(
                "CREATE LOGIN [{name}] WITH PASSWORD = '{password}'"
            ))
            .await
            .unwrap();
        schema
            .execute(&format!("CREATE USER [{name}] FOR LOGIN [{name}]"))
            .await
            .unwrap();
        let mut url = url::Url::parse(&schema.url).unwrap();
        url.set_username(&name).unwrap();
        url.set_password(Some(PASSWORD)).unwrap();
        Self {
            schema,
            name,
            url: url.into(),
        }
    }

    /// Drops the login and everything on which it was granted privileges.
    pub(crate) async fn drop(self) {
        self.schema.take_away().await;
        // Creates the schema again, because the cleanup of the test drops it.
        self.schema.execute("CREATE SCHEMA {schema}").await.unwrap();
        let drop_user = format!("DROP USER [{}]", self.name);
        self.schema.execute(&drop_user).await.unwrap();
        // Retries, because it may take a moment until the login's last session has ended.
        let drop_login = format!("DROP LOGIN [{}]", self.name);
        for _ in 0..50 {
            if self.schema.execute(&drop_login).await.is_ok() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        eprintln!("could not drop the login {}", self.name);
    }

    pub(crate) fn builder(&self) -> ratchet_store_sqlserver::Builder {
        let builder = SqlServerStore::builder(&self.url).schema(&self.schema.name);
        builder.deadline(std::time::Duration::from_secs(60))
    }

    /// Returns the statements that a DBA must run, according to the error.
    async fn told(&self) -> String {
        let refused = self.builder().connect().await.unwrap_err();
        assert_kind(&refused, StoreErrorKind::Misconfigured);
        let text = refused.to_string();
        assert!(!text.contains(PASSWORD), "{text}");
        let (_, told) = text.split_once("a DBA must run: ").unwrap_or_default();
        assert!(!told.is_empty(), "{text}");
        told.to_owned()
    }
}

pub(crate) async fn without_the_right_to_create_the_dba_is_told_what_to_run(schema: Arc<Schema>) {
    let login = Login::create(&schema).await;
    let told = login.told().await;
    assert!(told.contains("GRANT CREATE TABLE TO"), "{told}");
    assert!(told.contains("GRANT ALTER, SELECT"), "{told}");
    // The failed migration created nothing.
    let made = format!(
        "SELECT 1 FROM sys.tables AS t JOIN sys.schemas AS s ON s.schema_id = t.schema_id \
         WHERE s.name = N'{}' AND t.name <> N'test_clock'",
        schema.name
    );
    assert!(schema.rows(&made).await.unwrap().is_empty());

    // If the schema does not exist, the error contains the statement that creates it.
    let missing = format!("{}_new", schema.name);
    let builder = login.builder().schema(&missing);
    let refused = builder.connect().await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Misconfigured);
    let text = refused.to_string();
    let (_, told) = text.split_once("a DBA must run: ").unwrap();
    let (grant, create) = told.split_once("; ").unwrap();
    // On Babelfish, the owner of a schema already has the privilege that `grant` grants.
    if !schema.is_babelfish().await {
        schema.execute(grant).await.unwrap();
    }
    schema.execute(create).await.unwrap();
    let made = Schema::adopt(&schema.url, &missing).await;
    let store = login.builder().schema(&missing).connect().await.unwrap();
    enqueue(&store, job()).await;
    store.close().await;
    made.take_away().await;
    login.drop().await;
}

pub(crate) async fn without_rights_to_the_tables_the_dba_is_told_what_to_run(schema: Arc<Schema>) {
    let theirs = open(&schema).await;
    let login = Login::create(&schema).await;
    // A user without privileges does not see the tables. The store neither creates them again nor
    // reports them as missing.
    let told = login.told().await;
    assert!(told.starts_with("GRANT SELECT, INSERT"), "{told}");
    let without = login.builder().migrate(false).connect().await.unwrap_err();
    assert_kind(&without, StoreErrorKind::Misconfigured);
    schema.execute(&told).await.unwrap();
    let store = login.builder().connect().await.unwrap();
    let id = enqueue(&store, job()).await;
    assert!(exists(&theirs, id).await);
    store.close().await;
    login.drop().await;
}

pub(crate) async fn who_may_only_read_is_refused_by_the_right(schema: Arc<Schema>) {
    let theirs = open(&schema).await;
    let id = enqueue(&theirs, job()).await;
    let login = Login::create(&schema).await;
    let read = format!("GRANT SELECT ON SCHEMA::{{schema}} TO [{}]", login.name);
    schema.execute(&read).await.unwrap();
    let store = login.builder().connect().await.unwrap();
    assert!(exists(&store, id).await);
    let new = [job()];
    let refused = store.enqueue(&new).await.unwrap_err();
    assert_kind(&refused, StoreErrorKind::Misconfigured);
    assert!(refused.to_string().contains("permission"), "{refused}");
    assert!(
        !exists(&theirs, new[0].id()).await,
        "expected nothing to be left over"
    );
    store.close().await;
    login.drop().await;
}

/// Uses a password with all characters that a URL and a connection string escape.
pub(crate) async fn odd_passwords_log_in_by_url_and_by_connection_string(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let login = Login::create(&schema).await;
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON SCHEMA::{schema} TO";
    let grant = format!("{grant} [{}]", login.name);
    schema.execute(&grant).await.unwrap();
    login.builder().connect().await.unwrap().close().await;
    let url = url::Url::parse(&schema.url).unwrap();
    let text = format!(
        "Server=tcp:{},{};Database={};User Id={};Password=\"{PASSWORD}\";Application Name=by string",
        url.host_str().unwrap(),
        url.port().unwrap_or(1433),
        server::database(&schema.url),
        login.name,
    );
    let builder = SqlServerStore::builder(&text).schema(&schema.name);
    // Uses the same encryption as the URL, because a connection string cannot turn encryption off.
    let builder = match schema.url.contains("encrypt=off") {
        true => builder.encryption(ratchet_store_sqlserver::Encryption::Off),
        false => builder.trust_any_certificate(),
    };
    assert!(!format!("{builder:?}").contains("Poor-1"));
    let store = builder.connect().await.unwrap();
    assert!(!format!("{store:?}").contains("Poor-1"));
    enqueue(&store, job()).await;
    let mut tx = store.begin().await.unwrap();
    let name = tx.query("SELECT CAST(APP_NAME() AS nvarchar(128))", &[]);
    let name = name.await.unwrap();
    assert_eq!(name[0].get::<&str, _>(0), Some("by string"));
    tx.rollback().await.unwrap();
    store.close().await;
    login.drop().await;
}
