-- Notes that a new job is in a batch. [batch.join]
INSERT INTO ratchet_batch_jobs (job, batch) VALUES (?1, ?2)
