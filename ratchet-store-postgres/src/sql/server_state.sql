-- Whether the server is a standby, and whether this session may only read. Reads no table.
SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'
