-- Stores an open batch, unless it is stored. [batch.create]
INSERT INTO ratchet_batches (id, created_at) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING
