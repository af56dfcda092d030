-- The tables, their migrations, and the server state that diagnostics read.

-- name: create_migrations
-- Creates the table that records the applied migrations. An empty checksum means that a migration
-- has begun: the server commits after each statement, so a migration may end in between.
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    version    INT NOT NULL,
    name       VARCHAR(128) NOT NULL,
    checksum   VARCHAR(128) NOT NULL,
    applied_at BIGINT NOT NULL,
    PRIMARY KEY (version)
) {table}

-- name: applied_migrations
-- Returns the applied migrations, in order.
SELECT version, name, checksum FROM {schema}.migrations WHERE checksum <> '' ORDER BY version

-- name: own_objects
-- Returns the tables and indexes whose names begin with the prefix $1, without the prefix.
SELECT SUBSTRING(table_name, CHAR_LENGTH($1) + 2)
FROM information_schema.tables
WHERE table_schema = {database} AND LEFT(table_name, CHAR_LENGTH($1) + 1) = CONCAT($1, '_')
UNION
SELECT index_name
FROM information_schema.statistics
WHERE table_schema = {database} AND LEFT(table_name, CHAR_LENGTH($1) + 1) = CONCAT($1, '_')
  AND index_name <> 'PRIMARY'

-- name: held_by_sessions
-- Returns the oldest open transactions of the server, which keep old row versions from being
-- removed, oldest first. [diag.read] Reads the state of the server, for which the user needs the
-- privilege PROCESS.
SELECT CAST(trx.trx_mysql_thread_id AS CHAR),
       CONCAT_WS(', ', session.user, session.host, session.db, session.command),
       TIMESTAMPDIFF(SECOND, trx.trx_started,
                     CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')) * 1000
FROM information_schema.innodb_trx AS trx
JOIN information_schema.processlist AS session ON session.id = trx.trx_mysql_thread_id
WHERE trx.trx_mysql_thread_id <> CONNECTION_ID()
ORDER BY trx.trx_started
LIMIT 100

-- name: foreign_engines
-- Returns those of these tables that do not have the engine InnoDB, with their engines. [diag.read]
SELECT table_name, COALESCE(engine, '')
FROM information_schema.tables
WHERE table_schema = {database} AND table_name IN ($1)
  AND table_type = 'BASE TABLE' AND COALESCE(engine, '') <> 'InnoDB'
ORDER BY table_name

-- name: server_settings
-- Returns the settings of the server on which durability and locking depend. [diag.read]
SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, CAST(@@binlog_format AS CHAR),
       @@global.read_only

-- name: cluster_size
-- Returns how many members a Galera cluster has; no row or 0 without a cluster. [diag.read]
SHOW GLOBAL STATUS LIKE 'wsrep_cluster_size'

-- name: own_encryption
-- Returns the cipher of this connection; empty if it is not encrypted. [diag.read]
SHOW SESSION STATUS LIKE 'Ssl_cipher'
