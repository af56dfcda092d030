-- The transactions of other sessions in this database that keep versions of rows, the oldest first, and
-- for how many seconds each has. Needs the right to see the state of the server. [diag.read]
SELECT TOP (100) CAST(held.session_id AS nvarchar(20)),
       CAST(CONCAT(sessions.login_name, N', ', sessions.program_name, N', ', sessions.host_name, N', ',
                   sessions.status) AS nvarchar(1000)),
       CAST(held.elapsed_time_seconds AS bigint)
FROM sys.dm_tran_active_snapshot_database_transactions AS held
JOIN sys.dm_exec_sessions AS sessions ON sessions.session_id = held.session_id
JOIN sys.databases AS databases ON databases.database_id = sessions.database_id
WHERE databases.name = DB_NAME() AND held.session_id <> @@SPID
ORDER BY held.elapsed_time_seconds DESC
