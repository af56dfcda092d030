-- The first heartbeat of a node: if it joins, the live nodes with its label are dead. One at a time,
-- so that of two new nodes with one label the later sees the earlier. Within a transaction.
-- [node.heartbeat] [node.label] Reads the small table.
DECLARE @now bigint = {now};
DECLARE @got int, @node binary(16) = CONVERT(binary(16), @P1);
EXEC @got = sp_getapplock @Resource = {joins}, @LockMode = 'Exclusive',
                          @LockOwner = 'Transaction', @LockTimeout = {lock_timeout};
IF @got < 0 THROW 50001, N'other nodes that join take too long', 1;
IF NOT EXISTS (SELECT 1 FROM {schema}.nodes WHERE node = @node)
BEGIN
    IF @P14 = 0 UPDATE {schema}.nodes SET status = 4 WHERE label = @P2 AND status < 3;
    INSERT INTO {schema}.nodes (node, label, status, running, capacity, interval, started_at,
                                last_seen, connections, cpu_percent, memory_bytes, roles,
                                capabilities, kinds, totals)
    VALUES (@node, @P2, @P14, @P3, @P4, @P5, @now, @now, @P6, @P7, @P8, @P9, @P10,
            CASE WHEN @P12 = 1 THEN @P11 END, NULLIF(@P13, N''));
END
