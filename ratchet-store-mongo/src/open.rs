//! Opens the collections: inspects the server, creates missing collections and indexes, and
//! compares the existing ones with the plan in `indexes`.

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ClientOptions;
use ratchet_core::model::{Finding, Severity};
use ratchet_core::{SchemaProblem, StoreErrorKind};

use crate::config::Config;
use crate::connection::Side;
use crate::error::{Failure, Result};
use crate::indexes::{Index, compare, mismatch, plan};
use crate::migrate::{Migration, Missing};
use crate::store::Server;

/// Schema version that this program supports. The program rejects collections with a newer version.
const VERSION: u32 = 1;
/// Wire protocol version of MongoDB 4.4, the oldest server with every feature that the store uses.
const OLDEST_WIRE: i32 = 9;

/// Inspects the server and creates missing collections and indexes, unless the configuration turns
/// this off. Fails if existing collections or indexes differ from the plan.
pub(crate) async fn open(side: &Side, config: &Config) -> Result<Server> {
    let server = look(side, config).await?;
    // Everything is compared before anything is created, so that a mismatch changes nothing.
    let plan = plan(&config.prefix);
    let Lacking { missing, version } = lacking(side, &plan).await?;
    if !config.create {
        return match missing.first() {
            None if version => Err(mismatch(
                SchemaProblem::Behind,
                format!(
                    "the collection {} has no document `ratchet` with the schema version: apply the \
                     pending migration",
                    side.meta.name()
                ),
            )),
            None => Ok(server),
            Some(Missing {
                exists: false,
                name,
                ..
            }) => Err(mismatch(
                SchemaProblem::Behind,
                format!("the collection {name} is missing"),
            )),
            Some(Missing { name, indexes, .. }) => {
                let index = indexes.first().map_or("", |index| index.name);
                Err(mismatch(
                    SchemaProblem::Behind,
                    format!("the collection {name} has no index {index}"),
                ))
            }
        };
    }
    for one in missing {
        if !one.exists {
            create(side, one.name).await?;
        }
        make(side, one.name, one.indexes).await?;
    }
    side.plain()
        .change(
            &side.meta,
            doc! { "_id": "ratchet" },
            doc! { "$max": { "version": i64::from(VERSION) } },
            true,
        )
        .await
        .or_else(|failure| match failure.is_duplicate() {
            // Another process inserted the version at the same time.
            true => Ok(None),
            false => Err(failure),
        })?;
    Ok(server)
}

/// Returns the migration that connecting would apply, or an empty list if nothing is missing.
/// Changes nothing.
pub(crate) async fn pending(side: &Side, config: &Config) -> Result<Vec<Migration>> {
    look(side, config).await?;
    let plan = plan(&config.prefix);
    let Lacking { missing, version } = lacking(side, &plan).await?;
    if missing.is_empty() && !version {
        return Ok(Vec::new());
    }
    let database = Some(side.database.name());
    let migration = Migration::new(database, &config.prefix, VERSION, &missing);
    Ok(vec![migration])
}

/// Returns the migration that creates all collections and indexes in an empty database.
pub(crate) fn scripts(database: Option<&str>, prefix: &str) -> Vec<Migration> {
    let plan = plan(prefix);
    let all: Vec<Missing<'_>> = plan.iter().map(Missing::all).collect();
    vec![Migration::new(database, prefix, VERSION, &all)]
}

/// The collections, indexes and version that the database lacks.
struct Lacking<'a> {
    /// Collections that do not exist or that lack indexes.
    missing: Vec<Missing<'a>>,
    /// Whether the schema version is missing. It is stored after everything else was created.
    version: bool,
}

/// Returns the missing parts of the database. Fails if existing collections or indexes differ from
/// the plan.
async fn lacking<'a>(side: &Side, plan: &'a [(String, Vec<Index>)]) -> Result<Lacking<'a>> {
    let names: Vec<&str> = plan.iter().map(|(name, _)| name.as_str()).collect();
    check_kinds(side, &names).await?;
    let version = !has_version(side).await?;
    let mut missing = Vec::new();
    for collection in plan {
        let (name, indexes) = collection;
        match stored_indexes(side, name).await? {
            None => missing.push(Missing::all(collection)),
            Some(stored) => {
                let indexes = compare(name, indexes, &stored)?;
                if !indexes.is_empty() {
                    let exists = true;
                    missing.push(Missing {
                        name,
                        exists,
                        indexes,
                    });
                }
            }
        }
    }
    Ok(Lacking { missing, version })
}

/// Reads the server's properties. Fails if the store cannot use the server.
async fn look(side: &Side, config: &Config) -> Result<Server> {
    let hello = match side.database.run_command(doc! { "hello": 1 }).await {
        Ok(hello) => hello,
        Err(error) => return Err(unreachable_server(config, error.into()).await),
    };
    let build = side
        .database
        .run_command(doc! { "buildInfo": 1 })
        .await
        .map_err(Failure::from)?;
    let version = build.get_str("version").unwrap_or("unknown").to_owned();
    if hello.get_i32("maxWireVersion").unwrap_or_default() < OLDEST_WIRE {
        return Err(Failure::new(
            StoreErrorKind::Misconfigured,
            format!("the server is MongoDB {version}; version 4.4 or later is required"),
        ));
    }
    refuse_router(&hello)?;
    refuse_direct(&hello, config.options.as_ref())?;
    Ok(Server {
        version,
        transactions: hello.contains_key("setName"),
    })
}

/// Fails if the server is a `mongos`, because each `mongos` has its own clock.
fn refuse_router(hello: &Document) -> Result<()> {
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Err(Failure::new(
            StoreErrorKind::Misconfigured,
            "the server is a mongos, and each mongos has its own clock; Ratchet needs one clock \
             for all nodes: connect to a replica set",
        ));
    }
    Ok(())
}

/// Fails if the client is directly connected to one member of a replica set with several members.
/// After an election this member may be a secondary, and the driver would not switch to the new
/// primary.
fn refuse_direct(hello: &Document, options: Option<&ClientOptions>) -> Result<()> {
    let direct = options.is_some_and(|options| options.direct_connection == Some(true));
    let members = hello.get_array("hosts").map_or(0, Vec::len);
    let name = hello.get_str("setName").unwrap_or_default();
    if direct && members > 1 {
        return Err(Failure::new(
            StoreErrorKind::Misconfigured,
            format!(
                "the URL has `directConnection=true`, but the server is one of {members} members \
                 of the replica set `{name}`: list the members and set `replicaSet={name}` \
                 instead, so that the driver follows the primary"
            ),
        ));
    }
    Ok(())
}

/// Returns the reason why the driver finds no server to use, or `failure` if the reason stays
/// unknown. The driver silently ignores a server in three cases: its replica set has another name
/// than configured, is not initiated, or does not exist. This function finds such a server with a
/// direct connection.
async fn unreachable_server(config: &Config, failure: Failure) -> Failure {
    let Some(options) = config.options.as_ref() else {
        return failure;
    };
    if failure.kind != StoreErrorKind::Unavailable {
        return failure;
    }
    for host in &options.hosts {
        let mut direct = options.clone();
        direct.hosts = vec![host.clone()];
        direct.repl_set_name = None;
        direct.direct_connection = Some(true);
        let hosts = u32::try_from(options.hosts.len()).unwrap_or(u32::MAX);
        // Server selection took most of the deadline, so all hosts together get a fifth of it.
        direct.server_selection_timeout = Some(config.terms.deadline / 5 / hosts);
        let Ok(client) = mongodb::Client::with_options(direct) else {
            continue;
        };
        let admin = client.database("admin");
        let Ok(hello) = admin.run_command(doc! { "hello": 1 }).await else {
            continue;
        };
        let wanted = options.repl_set_name.as_deref();
        let problem = match (hello.get_str("setName").ok(), wanted) {
            (Some(found), Some(wanted)) if found != wanted => {
                format!("the server is in the replica set `{found}`, but the URL names `{wanted}`")
            }
            (None, _) if hello.get_bool("isreplicaset").unwrap_or(false) => {
                "the server's replica set is not initiated".to_owned()
            }
            (None, Some(wanted)) => {
                format!("the server is in no replica set, but the URL names `{wanted}`")
            }
            _ => continue,
        };
        return Failure::new(StoreErrorKind::Misconfigured, problem);
    }
    failure
}

/// Returns whether the database contains a schema version. Fails if this program does not support
/// that version.
async fn has_version(side: &Side) -> Result<bool> {
    let meta = doc! { "_id": "ratchet" };
    let version = match side.plain().find_one(&side.meta, meta).await {
        Ok(found) => found.map(|meta| crate::row::int(&meta, "version")),
        Err(failure) => return Err(failure.about("the database cannot be read")),
    };
    match version {
        Some(Ok(version)) if version <= i64::from(VERSION) => Ok(true),
        Some(Ok(version)) => Err(mismatch(
            SchemaProblem::Newer,
            format!(
                "the collections have version {version}; this program supports at most {VERSION}"
            ),
        )),
        Some(Err(problem)) => Err(mismatch(
            SchemaProblem::Altered,
            format!("the stored schema version cannot be read: {problem}"),
        )),
        None => {
            // Ratchet stores the version before any document in these collections, so documents
            // without a version belong to another program.
            for rows in [&side.jobs, &side.nodes, &side.locks] {
                if side.plain().find_one(rows, doc! {}).await?.is_some() {
                    return Err(mismatch(
                        SchemaProblem::Altered,
                        format!(
                            "the collection {} has documents that are not Ratchet's",
                            rows.name()
                        ),
                    ));
                }
            }
            Ok(false)
        }
    }
}

/// Returns a finding about the stored schema version.
pub(crate) async fn version(side: &Side) -> Result<Vec<Finding>> {
    let this = doc! { "_id": "ratchet" };
    let meta = side.plain().find_one(&side.meta, this).await?;
    let version = meta.map(|meta| crate::row::count(&meta, "version"));
    let version = version.transpose()?.unwrap_or(0);
    Ok(vec![Finding::schema(version, VERSION.into())])
}

/// Returns a finding for each collection or index that is missing or differs from the plan.
pub(crate) async fn missing(side: &Side) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let plan = plan(side.prefix());
    let names: Vec<&str> = plan.iter().map(|(name, _)| name.as_str()).collect();
    for problem in odd_collections(side, &names).await? {
        let finding = Finding::new("odd_collection", Severity::Error, problem);
        findings.push(finding.remedy(
            "remove the option from the collection, or recreate the \
             collection",
        ));
    }
    for (name, indexes) in &plan {
        let Some(stored) = stored_indexes(side, name).await? else {
            findings.push(Finding::missing(&format!("the collection {name}")));
            continue;
        };
        match compare(name, indexes, &stored) {
            Ok(lacking) => findings.extend(
                lacking
                    .into_iter()
                    .map(|index| Finding::missing(&format!("the index {} of {name}", index.name))),
            ),
            Err(odd) => {
                let finding = Finding::new("odd_index", Severity::Error, odd.to_string());
                findings.push(
                    finding.remedy("drop the index and start a node, which creates Ratchet's own"),
                );
            }
        }
    }
    Ok(findings)
}

/// Fails if an existing collection has a type or an option that makes it unusable for Ratchet.
async fn check_kinds(side: &Side, names: &[&str]) -> Result<()> {
    match odd_collections(side, names).await?.into_iter().next() {
        None => Ok(()),
        Some(problem) => Err(mismatch(SchemaProblem::Altered, problem)),
    }
}

/// Describes each existing collection that Ratchet cannot use, with the reason.
async fn odd_collections(side: &Side, names: &[&str]) -> Result<Vec<String>> {
    let list = doc! {
        "listCollections": 1,
        "filter": { "name": { "$in": names } },
        "cursor": { "batchSize": 1_000 },
    };
    let reply = side.database.run_command(list).await;
    let reply = reply.map_err(|error| {
        Failure::from(error).about("the collections of the database cannot be listed")
    })?;
    let batch = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_array("firstBatch"));
    let batch = batch.map_err(|_| {
        mismatch(
            SchemaProblem::Altered,
            "the server's list of collections cannot be read",
        )
    })?;
    let problem = |collection: &Document| {
        let name = collection.get_str("name").unwrap_or_default();
        odd(collection).map(|problem| format!("the collection {name} {problem}"))
    };
    let collections = batch.iter().filter_map(Bson::as_document);
    Ok(collections.filter_map(problem).collect())
}

/// Returns the reason why Ratchet cannot use a collection, or `None` if Ratchet can use it.
/// `collection` is an entry of the server's list of collections.
fn odd(collection: &Document) -> Option<&'static str> {
    let nothing = Document::new();
    let options = collection.get_document("options").unwrap_or(&nothing);
    match collection.get_str("type") {
        Ok("view") => return Some("is a view"),
        Ok("timeseries") => return Some("is a time series, whose documents cannot be changed"),
        _ => {}
    }
    if options.contains_key("collation") {
        Some("has a collation: the server would treat different names as equal")
    } else if options.get_bool("capped").unwrap_or(false) {
        Some("is capped: the server would delete its oldest documents")
    } else if options.contains_key("expireAfterSeconds") {
        Some("has `expireAfterSeconds`: the server would delete its documents")
    } else if options.contains_key("validator") {
        Some("has a validator, which could refuse jobs: remove it with collMod")
    } else {
        None
    }
}

/// Returns the indexes of a collection, or `None` if the collection does not exist.
async fn stored_indexes(side: &Side, name: &str) -> Result<Option<Vec<Document>>> {
    const NO_COLLECTION: i32 = 26;
    let list = doc! { "listIndexes": name, "cursor": { "batchSize": 1_000 } };
    let reply = match side.database.run_command(list).await.map_err(Failure::from) {
        Err(failure) if failure.code == NO_COLLECTION => return Ok(None),
        reply => reply?,
    };
    let batch = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_array("firstBatch"));
    let batch = batch.map_err(|_| {
        mismatch(
            SchemaProblem::Altered,
            format!("the list of the indexes of {name} cannot be read"),
        )
    })?;
    let documents = batch.iter().filter_map(Bson::as_document);
    Ok(Some(documents.cloned().collect()))
}

async fn create(side: &Side, name: &str) -> Result<()> {
    const EXISTS: i32 = 48;
    match side.database.create_collection(name).await {
        Ok(()) => Ok(()),
        Err(error) => match Failure::from(error) {
            // Another process created the collection at the same time.
            failure if failure.code == EXISTS => Ok(()),
            failure => Err(failure.about("a collection cannot be created")),
        },
    }
}

/// Creates indexes on a collection. Other clients can read and write the collection during the
/// build.
async fn make(side: &Side, name: &str, indexes: Vec<&Index>) -> Result<()> {
    if indexes.is_empty() {
        return Ok(());
    }
    let documents: Vec<Document> = indexes.into_iter().map(Index::document).collect();
    let command = doc! {
        "createIndexes": name,
        "indexes": documents,
        "writeConcern": { "w": "majority" },
    };
    match side.database.run_command(command).await {
        Ok(_) => Ok(()),
        Err(error) => {
            let what = format!("the indexes of {name} cannot be created");
            Err(Failure::from(error).about(&what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_direct_connection_to_one_of_several_members_is_refused() {
        let options = async |query: &str| {
            let url = format!("mongodb://h/?{query}");
            ClientOptions::parse(url).await.unwrap()
        };
        let member = doc! { "setName": "rs0", "hosts": ["a:1", "b:1", "c:1"] };
        let direct = options("directConnection=true").await;
        let failure = refuse_direct(&member, Some(&direct)).unwrap_err();
        assert_eq!(failure.kind, StoreErrorKind::Misconfigured);
        assert!(
            failure.to_string().contains("`replicaSet=rs0`"),
            "{failure}"
        );
        let set = options("replicaSet=rs0").await;
        assert!(refuse_direct(&member, Some(&set)).is_ok());
        let alone = doc! { "setName": "rs0", "hosts": ["a:1"] };
        assert!(refuse_direct(&alone, Some(&direct)).is_ok());
        assert!(refuse_direct(&doc! {}, Some(&direct)).is_ok());
    }

    #[test]
    fn a_router_is_refused() {
        let router = doc! { "msg": "isdbgrid", "maxWireVersion": 17, "ok": 1.0 };
        let failure = refuse_router(&router).unwrap_err();
        assert_eq!(failure.kind, StoreErrorKind::Misconfigured);
        assert!(failure.to_string().contains("mongos"), "{failure}");
        let member = doc! { "setName": "rs0", "maxWireVersion": 17, "ok": 1.0 };
        assert!(refuse_router(&member).is_ok());
        assert!(refuse_router(&doc! { "maxWireVersion": 17 }).is_ok());
    }
}
