-- Takes a unique key that is free. [keys.unique] [keys.race] [requeue.key]
INSERT INTO ratchet_unique_keys (key, job) VALUES (?1, ?2)
