-- What an action must know of a job. [act.respond] Primary key of ratchet_jobs.
SELECT state, data, flags FROM ratchet_jobs WHERE id = ?1
