-- Keeps why jobs failed that nobody ran. [signal.expire] Primary key of job_notes.
INSERT INTO {schema}.job_notes AS notes (job, last_error)
SELECT job, error FROM unnest($1::uuid[], $2::text[]) AS failed (job, error)
ON CONFLICT (job) DO UPDATE SET last_error = excluded.last_error
