-- The claims that were the last to settle these jobs. [settle.repeat] Primary key of jobs.
SELECT id, settled_seq FROM {schema}.jobs WHERE id = ANY($1::uuid[]) AND settled_seq > 0
