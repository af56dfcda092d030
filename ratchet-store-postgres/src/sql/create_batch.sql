-- Stores an open batch, unless it is stored. [batch.create]
INSERT INTO {schema}.batches (id, created_at) SELECT $1, {now} ON CONFLICT (id) DO NOTHING
