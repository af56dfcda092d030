-- The database, and whether readers see what was committed and wait for nobody (1). [diag.read]
SELECT CAST(name AS nvarchar(128)),
       CAST(CASE WHEN is_read_committed_snapshot_on = 1 THEN 1 ELSE 0 END AS int)
FROM sys.databases
WHERE name = DB_NAME()
