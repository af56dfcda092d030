-- Sends wakeups with the commit of the transaction: one for each of these payloads.
SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS wakeup (payload)
